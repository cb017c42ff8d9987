package elastic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/boottime"
	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/group"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/founding"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// Who founds the group
//
// The agent that listens at the endpoint founds the store's group when it starts. Later, and where it has been started
// again, others may keep the store. These rules keep the job from having two stores:
//
//  1. A file beside the store's marker names the agents that can keep the store (founding.EarlierGroup). An agent that
//     finds the file asks them. So does an agent that was in the group and has not heard of a leader for a keep-alive
//     time. It founds another group only if none of them may still have a leader, or if they have been too few for a
//     round, even with this node, for a keep-alive time.
//  2. An agent without the file, for example in a new pod, founds a group. It decides no round for a keep-alive time
//     while nodes are missing (FreshStore), and yields to the leader of a group that announces itself at the endpoint.
//  3. The leader of a group announces it at the endpoints, and at all agents that could keep the store of a group
//     before. An agent that has heard of no leader of its own group then leaves that group.

// findGroup makes sure that this process, which listens at the endpoint, is in a group or knows one. It returns a
// session if it has opened one on the way.
func (m *storeMember) findGroup(ctx context.Context) (*coord.Client, error) {
	m.mu.Lock()
	known, former := m.KnowsGroup(time.Now()), m.Former()
	m.mu.Unlock()
	if known {
		return nil, nil
	}
	m.member.ForgetGroup()
	if former != nil {
		client, err := m.joinFormer(ctx, former)
		if client != nil || err != nil {
			return client, err
		}
		m.log.Warn().Msgf("the nodes that kept the store of run %q are gone, or too few for a round: this node begins a "+
			"new store, whose first round waits %s, until their workers have ended", m.access.RunID,
			seconds.Format(m.access.TTL))
		m.beginAnew(former)
	} else if client, err := m.joinEndpoints(ctx); client != nil || err != nil {
		return client, err
	}
	m.update(func() { m.founded = true })
	//nolint:contextcheck // the group outlives ctx
	if err := m.member.Found(); err != nil && !errors.Is(err, group.ErrMember) {
		return nil, fmt.Errorf("%w: %w", rdzv.ErrConnection, err)
	}
	if former == nil {
		m.log.Info().Stringer("address", m.front.Addr()).Msg("hosting the rendezvous")
		m.access.adviseEndpoints()
		m.place.warnOfPredecessor(m.access)
	}
	m.access.warnOfOpenStore(m.front)
	return nil, nil
}

// beginAnew gives up the former group before this process founds another one. Workers of the former group's agents end
// within a keep-alive time.
func (m *storeMember) beginAnew(former *founding.EarlierGroup) {
	m.member.Yield(group.Announcement{})
	m.setAnnounced(former.Addrs)
	now := boottime.Now()
	m.update(func() {
		m.BeginAnew()
		m.place.fresh = rounds.FreshStore{CreatedAt: now, HasPredecessor: true, PredecessorEnd: now}
	})
}

// joinFormer opens a session in a former group, if one of its agents answers. It returns neither a session nor an error
// if this process may found a new group, see [founding.State.MayBeginAnew].
func (m *storeMember) joinFormer(ctx context.Context, former *founding.EarlierGroup) (*coord.Client, error) {
	client, errs := m.access.firstSession(ctx, former.Addrs, founding.MemberTimeout)
	if client != nil {
		m.access.setClient(client)
		return client, nil
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", rdzv.ErrConnection, context.Cause(ctx))
	}
	if err := notOurs(errs); err != nil {
		return nil, err
	}
	m.mu.Lock()
	alive, may := m.MayBeginAnew(time.Now(), former, errs)
	recorded := former == m.Earlier
	m.mu.Unlock()
	if may {
		return nil, nil
	}
	who := strings.Join(alive, ", ")
	if who == "" {
		who = "nodes whose addresses this node does not know"
	}
	remedy := ""
	if file := m.place.groupFile(); recorded && file != "" {
		remedy = "; if they have ended for good, remove " + file
	}
	return nil, fmt.Errorf("%w: too few of the nodes that keep the store of run %q answer. Others may keep it, so this "+
		"node does not begin a new one: %s%s", rdzv.ErrConnection, m.access.RunID, who, remedy)
}

// firstAskTimeout is how long the agent at the first endpoint asks the others before it founds a group: nearly always
// it is the first to come.
const firstAskTimeout = 250 * time.Millisecond

// joinEndpoints opens a session at another endpoint, if the store is there. It returns neither a session nor an error
// if this process may found the group: nobody answers at the endpoints before its own.
func (m *storeMember) joinEndpoints(ctx context.Context) (*coord.Client, error) {
	if len(m.access.More) == 0 {
		return nil, nil
	}
	timeout := founding.MemberTimeout
	if m.Index == 0 {
		timeout = firstAskTimeout
	} else {
		m.member.Wait() // before this process asks another one, which may ask it at the same time
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	addrs := m.access.endpoints(m.Index)
	client, errs := m.access.firstSession(bounded, addrs, timeout)
	refused := notOurs(errs)
	switch {
	case client != nil:
		m.access.setClient(client)
		return client, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w: %w", rdzv.ErrConnection, context.Cause(ctx))
	case refused != nil:
		return nil, refused
	case m.Index == 0:
		m.warnOfUnknownHosts(errs)
		return nil, nil
	}
	before := 0
	for i := range m.Index {
		before += len(m.access.hostOf(i).Ports)
	}
	var waits string // another agent that waits as this one does
	for i, err := range errs[:before] {
		failed, ok := errors.AsType[*coord.DialError](err)
		switch {
		case !ok:
		case failed.Waits():
			waits = failed.Addr
		case failed.Obstacle == coord.ObstacleElsewhere, failed.Addr != addrs[i]:
			return nil, err // the agent there knows more
		}
	}
	if time.Since(m.began) < time.Duration(m.Index)*founding.FoundDelay {
		return nil, &endpointsError{errs}
	}
	if waits != "" {
		m.log.Warn().Msgf("this node and the one at %s have waited for each other to begin the job's store: give all nodes "+
			"the same endpoints in the same order", waits)
		return nil, nil
	}
	m.log.Warn().Msgf("nobody answers at the endpoints before %s: this node begins the job's store", m.Addr)
	return nil, nil
}

// warnOfUnknownHosts warns of further endpoints whose host does not exist: newcomers do not find the store there.
func (m *storeMember) warnOfUnknownHosts(errs []error) {
	for _, err := range errs {
		if unknown, ok := errors.AsType[*net.DNSError](err); ok && unknown.IsNotFound {
			m.log.Warn().Msgf("no host has the name %s, which is in --rdzv-endpoint: no node will find the job there",
				unknown.Name)
		}
	}
}

// mayDecide reports whether the leader of the rendezvous may write its decision. It may not once the process has begun
// to yield to another group. If there is a round (hasRound), mayDecide records it, and the process does not yield any
// more while its group has a leader.
func (m *storeMember) mayDecide(hasRound bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Yielding {
		return false
	}
	m.recordRound(hasRound)
	return true
}

// recordRound records that a round was decided, and announces it from now on. m.mu is held.
func (m *storeMember) recordRound(hasRound bool) {
	if hasRound && !m.HasRound {
		m.HasRound = true
		m.watchVoters()
		m.tasks.Go(func() { m.setAnnounced(nil) })
	}
}

// forget makes the next open look for a group, or found one: the agent has had no session for so long that the group
// which this process knew may have ended. Until it knows another one, it names none to others.
func (m *storeMember) forget() {
	m.member.ForgetGroup()
	m.update(func() { m.HeardOf = time.Time{} })
}

// setKnown sets which other agents can keep the store, as far as this process knows.
func (m *storeMember) setKnown(addrs []string, others int) {
	m.mu.Lock()
	record, mayGoOn := m.SetKnown(addrs, others)
	alone := m.Alone
	m.mu.Unlock()
	switch {
	case record == nil:
		return
	case mayGoOn:
		m.place.writeGroup(*record)
	}
	if alone {
		m.setUnprepared(&m.noHeirsFile, m.place.writeHeirs(*record))
	}
}
