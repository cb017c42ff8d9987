package group

import (
	"context"
	"errors"
	"slices"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

var (
	errRemoved = errors.New("the group has removed this node")
	errAlone   = errors.New("no other node can take over the job's store")
)

// Leave hands over what this member does for the group: it returns when another member leads and this one is a member
// no more. It returns at once if the process is in no group, with an error if it is the group's only member and there
// is no candidate. The process must still serve its connections until then. Call Close afterwards in any case.
func (m *Member) Leave(ctx context.Context) error {
	result := make(chan error, 1)
	m.call(func() {
		if m.replica == nil {
			result <- nil
			return
		}
		m.manager.leaving(m.id)
		m.left = append(m.left, result)
	})
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-m.done:
		return coord.ErrServerClosed
	}
}

// leaveNow does this member's part in leaving, once a tick. It asks the leader, also after its removal: the others may
// need its vote until they have applied the removal.
func (m *Member) leaveNow(status replica.Status) {
	if _, leaving := m.manager.departs[m.id]; !leaving {
		return
	}
	switch {
	case status.Leading && len(status.Voters) == 1 && len(status.Learners) == 0:
		if len(m.view(status, 0).candidates) > 0 {
			return
		}
		for _, left := range m.left {
			left <- errAlone
		}
		m.left = nil
		delete(m.manager.departs, m.id)
	case status.Leading:
	case status.Leader != 0 && status.Leader != m.id:
		m.send(m.addrOf(status.Leader), frame{kind: frameLeave, id: m.id})
	default:
		for _, id := range status.Voters { // one of them may lead soon
			if id != m.id {
				m.send(m.addrOf(id), frame{kind: frameLeave, id: m.id})
			}
		}
	}
}

// handleLeave handles another member's announcement.
func (m *Member) handleLeave(in incoming) {
	status := m.replica.Status()
	switch {
	case !status.Leading:
	case slices.Contains(slices.Concat(status.Voters, status.Outgoing, status.Learners), in.id):
		m.manager.leaving(in.id)
	case m.isSettled(status):
		m.send(in.from.addr, frame{kind: frameRemoved, id: in.id})
	}
}

// isSettled reports whether the voters have applied the latest change of members: a majority, and all that are not
// silent.
func (m *Member) isSettled(status replica.Status) bool {
	applied := 0
	for _, id := range status.Voters {
		other, found := find(status.Members, id)
		switch {
		case id == m.id, found && other.Applied >= status.Changed:
			applied++
		case found && other.Silent < electionTicks:
			return false
		}
	}
	return applied > len(status.Voters)/2
}

// find returns what the leader knows of a member.
func find(members []replica.Member, id replica.ID) (replica.Member, bool) {
	i := slices.IndexFunc(members, func(m replica.Member) bool { return m.ID == id })
	if i < 0 {
		return replica.Member{}, false
	}
	return members[i], true
}
