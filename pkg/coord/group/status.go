package group

import (
	"slices"

	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

// Status describes the group as this member sees it.
type Status struct {
	// Member reports whether this process is in a group, Leading whether it leads it.
	Member, Leading bool
	// Leader is the address of the member that leads, or "" if this member knows none.
	Leader string
	// Voters are the addresses of the members that vote, in the order in which they joined.
	Voters []string
	// SurvivesLoss reports whether the group survives the loss of any one voter: the others reach each other then. Only
	// the leader knows. It learns of a lost voter after half a second, and of a lost path between two others after half a
	// minute.
	SurvivesLoss bool
	// Heirs are the addresses of the members that can take over if the process of the only voter is killed; see TakeOver.
	// Only the leader knows them.
	Heirs []string
	// Apart says which voters do not reach each other, and why. If the leader is lost, such voters may be unable to elect
	// another one. Only the leader knows.
	Apart []string
}

// Status returns the group's state.
func (m *Member) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.status
	s.Leader = m.leader
	return s
}

// setStatus updates what Status returns, and has checked what it depends on.
func (m *Member) setStatus() {
	status := m.replica.Status()
	m.watchPaths(status)
	s := Status{Member: true, Leading: status.Leading, SurvivesLoss: status.SurvivesLoss()}
	for _, id := range status.Voters {
		if other, found := find(status.Members, id); found && other.Silent >= missingTicks {
			s.SurvivesLoss = false
		}
		s.Voters = append(s.Voters, m.addrOf(id))
	}
	if status.Leading && len(status.Voters) >= 3 && !m.manager.paths.complete(without(status.Voters, []replica.ID{m.id})) {
		s.SurvivesLoss, s.Apart = false, m.apart(status)
	}
	for _, id := range status.Learners {
		if other, found := find(status.Members, id); found && len(s.Voters) == 1 && other.Applied > 0 &&
			other.Silent < missingTicks {
			s.Heirs = append(s.Heirs, m.addrOf(id))
		}
	}
	m.publish(s)
}

// apart says which of the other voters do not reach each other. It leaves out silent voters: they may have ended.
func (m *Member) apart(status replica.Status) (apart []string) {
	heard := slices.DeleteFunc(slices.Clone(status.Voters), func(id replica.ID) bool {
		other, found := find(status.Members, id)
		return !found || other.Silent >= missingTicks
	})
	p := &m.manager.paths
	for _, pair := range p.pairs(heard) {
		apart = append(apart, p.describe(pair[0], pair[1], m.addrOf))
	}
	return apart
}

// publish makes s what Status returns. The loop calls it.
func (m *Member) publish(s Status) {
	m.mu.Lock()
	s.Leader = m.leader
	same := m.status.equal(s)
	m.status = s
	m.mu.Unlock()
	if !same && m.opts.OnChange != nil {
		m.opts.OnChange(s)
	}
}

func (s Status) equal(other Status) bool {
	return s.Member == other.Member && s.Leading == other.Leading && s.Leader == other.Leader &&
		s.SurvivesLoss == other.SurvivesLoss && slices.Equal(s.Voters, other.Voters) &&
		slices.Equal(s.Heirs, other.Heirs) && slices.Equal(s.Apart, other.Apart)
}
