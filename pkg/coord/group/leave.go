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

// Leave hands over this member's duties in the group and leaves it. It returns when another member leads and this one
// has been removed. The process joins no group again. Leave returns at once if the process is in no group. It returns
// an error if this is the last member and there is no candidate; of members that leave together, one is the last. The
// process must still serve its connections until Leave returns. Call Close afterwards in any case.
func (m *Member) Leave(ctx context.Context) error {
	result := make(chan error, 1)
	m.call(func() {
		m.gone = true
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

// askOthers sends, once a tick, the requests of a member that is leaving or hears from no leader. A leaving member
// notifies all voters, because any of them may lead soon and must know who stays. It continues after its removal: the
// others may need its vote until they have applied the removal.
func (m *Member) askOthers(status replica.Status) {
	g := &m.manager
	members := status.All()
	for id := range g.departs {
		if id != m.id && !slices.Contains(members, id) {
			delete(g.departs, id)
		}
	}
	if status.Leading {
		g.heard = g.now
	}
	ask := frame{kind: frameAsk, id: m.id}
	var addrs []string
	if _, leaving := g.departs[m.id]; leaving {
		if m.isLast(status) {
			m.stay()
			return
		}
		ask.kind = frameLeave
		addrs = append(addrs, m.addrOf(status.Leader))
	} else if silence := g.now - g.heard; silence < silentTicks || silence%electionTicks != 0 {
		return
	}
	for _, id := range status.Voters {
		addrs = append(addrs, m.addrOf(id))
	}
	if g.now-g.heard >= silentTicks { // members that this one does not know may have removed it
		m.mu.Lock()
		for _, c := range m.candidates {
			addrs = append(addrs, c.Addr)
		}
		m.mu.Unlock()
	}
	slices.Sort(addrs)
	for _, addr := range slices.Compact(addrs) {
		if addr != "" && addr != m.opts.Addr {
			m.send(addr, ask)
		}
	}
}

// isLast reports whether this process is the group's only member and has no candidate to invite. It is not while its
// place is being given to another voter.
func (m *Member) isLast(status replica.Status) bool {
	alone := status.Leading && len(status.All()) == 1
	return alone && len(m.view(status, 0).candidates) == 0
}

// stay ends the attempt to leave, because no other process can take over.
func (m *Member) stay() {
	for _, left := range m.left {
		left <- errAlone
	}
	m.left, m.gone = nil, false
	delete(m.manager.departs, m.id)
}

// handleAsk handles another member's notice that it will leave, or its question whether it is still a member.
func (m *Member) handleAsk(in incoming) {
	status := m.replica.Status()
	switch {
	case slices.Contains(status.All(), in.id):
		if in.kind == frameLeave {
			m.manager.leaving(in.id)
		}
	case status.Leading && m.isSettled(status):
		m.send(in.from.addr, frame{kind: frameRemoved, id: in.id})
	}
}

// isSettled reports whether enough voters have applied the latest change of members: a majority, and each voter that is
// not silent.
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

// find returns the leader's record of a member.
func find(members []replica.Member, id replica.ID) (replica.Member, bool) {
	i := slices.IndexFunc(members, func(m replica.Member) bool { return m.ID == id })
	if i < 0 {
		return replica.Member{}, false
	}
	return members[i], true
}
