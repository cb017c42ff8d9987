package rounds

import "slices"

// StoreAddrs is the value of the key "store": where the agents find the store that they keep together.
type StoreAddrs struct {
	// Addrs are the voters, of which Leader serves, and Candidates all agents that can keep the store. Others is how many
	// further agents there are.
	Addrs      []string `json:"addrs"`
	Leader     string   `json:"leader"`
	Candidates []string `json:"candidates,omitempty"`
	Others     int      `json:"others,omitempty"`
	// SurvivesLoss says that any one voter may be lost, and HasRound that a round was decided.
	SurvivesLoss bool `json:"survives_loss,omitempty"`
	HasRound     bool `json:"has_round,omitempty"`
	// Heirs are those of the agents that can take over from the only voter if its agent is killed.
	Heirs []string `json:"heirs,omitempty"`
	// Problem says why the loss of the leader's node may end the job, once that has lasted for a while; otherwise it is
	// empty. If the leader is the only voter, it says why no other agent helps. Otherwise it lists the voters that do not
	// reach each other.
	Problem string `json:"problem,omitempty"`
}

// Equal reports whether s and other are equal, apart from Others.
func (s StoreAddrs) Equal(other StoreAddrs) bool {
	return s.Leader == other.Leader && s.SurvivesLoss == other.SurvivesLoss && s.HasRound == other.HasRound &&
		s.Problem == other.Problem && slices.Equal(s.Addrs, other.Addrs) && slices.Equal(s.Candidates, other.Candidates) &&
		slices.Equal(s.Heirs, other.Heirs)
}

// Reachable returns where the store may be until the next value arrives. Of three voters at least one stays. A voter
// that keeps the store alone may hand over to a candidate, and cannot announce that before it ends.
func (s StoreAddrs) Reachable() []string {
	if len(s.Addrs) >= MinVoters {
		return slices.Clone(s.Addrs)
	}
	return slices.Concat(s.Addrs, s.Candidates)
}

// SetStoreMember sets the address at which this agent can help to keep the store; empty if it cannot.
func (m *Member) SetStoreMember(addr string) {
	if m.report.StoreMember != addr {
		m.report.StoreMember, m.dirty = addr, true
	}
}

// MinVoters is the least number of voters that survive the loss of one.
const MinVoters = 3
