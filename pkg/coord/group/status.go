package group

import "slices"

// Status describes the group as this member sees it.
type Status struct {
	// Member reports whether this process is in a group, Leading whether it leads it.
	Member, Leading bool
	// Leader is the address of the member that leads, or "" if this member knows none.
	Leader string
	// Voters are the addresses of the members that vote, in the order in which they joined.
	Voters []string
	// SurvivesLoss reports whether any one voter may be lost. Only the leader knows, and learns of a lost voter only after
	// half a second.
	SurvivesLoss bool
	// Heirs are the addresses of the members that can take over if the process of the only voter is killed, see TakeOver.
	// Only the leader knows.
	Heirs []string
}

// Status returns the group's state.
func (m *Member) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.status
	s.Leader = m.leader
	return s
}

// setStatus updates what Status returns.
func (m *Member) setStatus() {
	status := m.replica.Status()
	s := Status{Member: true, Leading: status.Leading, SurvivesLoss: status.SurvivesLoss()}
	for _, id := range status.Voters {
		if other, found := find(status.Members, id); found && other.Silent >= missingTicks {
			s.SurvivesLoss = false
		}
		s.Voters = append(s.Voters, m.addrOf(id))
	}
	for _, id := range status.Learners {
		if other, found := find(status.Members, id); found && len(s.Voters) == 1 && other.Applied > 0 &&
			other.Silent < missingTicks {
			s.Heirs = append(s.Heirs, m.addrOf(id))
		}
	}
	m.publish(s)
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
		slices.Equal(s.Heirs, other.Heirs)
}
