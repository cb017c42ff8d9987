package group

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/internal/plainerr"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

const (
	maxTargets = 16  // how many members one request may name
	maxReason  = 200 // bytes of a reason in an answer
)

// watchPaths has the other voters check whether they reach each other, if this member leads and a check is due. The
// loop calls it.
func (m *Member) watchPaths(status replica.Status) {
	p := &m.manager.paths
	if !status.Leading || p.term != status.Term {
		*p = paths{term: status.Term}
	}
	if !status.Leading || status.Changing || len(status.Voters) < 3 {
		return
	}
	voters := without(status.Voters, []replica.ID{m.id})
	if !p.due(m.manager.now, voters) {
		return
	}
	c := p.begin(m.manager.now, voters)
	hello := m.hello()
	for _, from := range voters {
		targets := slices.DeleteFunc(slices.Clone(voters), func(id replica.ID) bool {
			return id == from || m.addrOf(id) == ""
		})
		addr, request := m.addrOf(from), frame{kind: frameReach, id: from, texts: m.addrsOf(targets)}
		if addr == "" {
			continue
		}
		m.running.Go(func() {
			missed, err := m.askPaths(addr, hello, request)
			if err != nil {
				m.log.Debug().Err(err).Str("member", addr).Msg("does not know which members another one reaches")
				return
			}
			m.call(func() { m.notePaths(c, from, targets, missed) })
		})
	}
}

// askPaths asks the member at addr which of the addresses in the request it does not reach. missed holds the reason for
// each. The request has its own connection, so that the answer comes from the process that received the request. A
// process that does not know such requests only closes that connection.
func (m *Member) askPaths(addr string, hello []byte, request frame) (missed map[string]string, err error) {
	ctx, cancel := m.within(retryTicks)
	defer cancel()
	nc, err := m.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	defer stop()
	if err := write(nc, slices.Concat(hello, request.encode()), func(int) {}); err != nil {
		return nil, err
	}
	answer, err := readFrame(nc, maxHello)
	switch {
	case err != nil:
		return nil, err
	case answer.kind != frameMissed || len(answer.texts)%2 != 0:
		return nil, errFrame
	}
	missed = map[string]string{}
	for pair := range slices.Chunk(answer.texts, 2) {
		missed[pair[0]] = pair[1]
	}
	return missed, nil
}

// within returns a context that ends after the given number of ticks, or with the member.
func (m *Member) within(ticks int) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(ticks)*m.opts.Tick)
	m.running.Go(func() {
		select {
		case <-m.done:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, cancel
}

// notePaths records a voter's answer.
func (m *Member) notePaths(c *pathCheck, from replica.ID, targets []replica.ID, missed map[string]string) {
	p := &m.manager.paths
	if m.replica == nil || p.latest != c {
		return
	}
	for _, to := range targets {
		p.note(m.manager.now, from, to, missed[m.addrOf(to)])
	}
	p.remember(m.manager.now, c.voters, m.addrOf)
}

// handleReach answers the leader's question which members this one does not reach. It does not answer a question that
// is meant for another process.
func (m *Member) handleReach(in incoming) {
	if m.replica == nil || in.from.instance != m.instance || in.id != m.id || len(in.texts) > maxTargets {
		in.answer <- frame{}
		return
	}
	m.running.Go(func() { in.answer <- frame{kind: frameMissed, texts: m.tryPaths(in.texts)} })
}

// tryPaths connects to each of the addresses as for the replica's messages. It returns the addresses that it could not
// connect to, each followed by the reason.
func (m *Member) tryPaths(addrs []string) (missed []string) {
	ctx, cancel := m.within(pathTicks + pathTicks/4) // the handshake needs part of this time
	defer cancel()
	errs := make([]error, len(addrs))
	var tries sync.WaitGroup
	for i, addr := range addrs {
		tries.Go(func() {
			nc, err := m.dialWithin(ctx, addr, pathTicks*m.opts.Tick)
			if errs[i] = err; err == nil {
				nc.Close()
			}
		})
	}
	tries.Wait()
	for i, addr := range addrs {
		if errs[i] != nil {
			missed = append(missed, addr, shorten(Reason(errs[i]), maxReason))
		}
	}
	return missed
}

// Reason says in a few words why a connection to a member was not possible.
func Reason(err error) string {
	if failed, ok := errors.AsType[*coord.DialError](err); ok {
		if failed.Obstacle != coord.ObstacleConnect {
			return failed.Message
		}
		err = cmp.Or(failed.Err, err)
	}
	if refused, ok := errors.AsType[*coord.RefusedError](err); ok {
		return refused.Message
	}
	return plainerr.Text(err)
}

// shorten returns at most the first size bytes of a text.
func shorten(text string, size int) string {
	return strings.ToValidUTF8(text[:min(len(text), size)], "")
}
