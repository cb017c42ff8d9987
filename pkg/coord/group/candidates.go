package group

import (
	"context"
	"slices"
)

// Candidate is a process that can become a member.
type Candidate struct {
	// Addr is the process's address, HOST:PORT. Process distinguishes the processes that use this address one after the
	// other: facts about one do not hold for the next.
	Addr, Process string
}

// SetCandidates sets the processes that this member, while it leads, may ask to join the group, the best first. Members
// among them are ignored.
func (m *Member) SetCandidates(candidates []Candidate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.candidates = candidates
	m.forgetDials()
}

// Unreached is a candidate whose latest attempt to connect has failed with Err.
type Unreached struct {
	Addr string
	Err  error
}

// Unreached returns the candidates that this member, while it leads, has tried to reach and could not. They are in the
// order of SetCandidates.
func (m *Member) Unreached() []Unreached {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Unreached
	for _, c := range m.candidates {
		if err := m.dialErrs[c.Addr]; err != nil {
			all = append(all, Unreached{c.Addr, err})
		}
	}
	return all
}

// noteDial records the result of an attempt to connect to addr. It ignores an attempt that was given up.
func (m *Member) noteDial(ctx context.Context, addr string, err error) {
	if ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, named := m.candidateAt(addr); err == nil || !named {
		delete(m.dialErrs, addr)
		return
	}
	m.dialErrs[addr] = err
}

// forgetDials forgets the attempts to connect to former candidates. m.mu is held.
func (m *Member) forgetDials() {
	for addr := range m.dialErrs {
		if _, named := m.candidateAt(addr); !named {
			delete(m.dialErrs, addr)
		}
	}
}

// candidate is candidateAt for callers that do not hold m.mu.
func (m *Member) candidate(addr string) (c Candidate, found bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.candidateAt(addr)
}

// candidateAt returns the candidate at addr that SetCandidates has named. m.mu is held.
func (m *Member) candidateAt(addr string) (c Candidate, found bool) {
	i := slices.IndexFunc(m.candidates, func(c Candidate) bool { return c.Addr == addr })
	if i < 0 {
		return Candidate{}, false
	}
	return m.candidates[i], true
}
