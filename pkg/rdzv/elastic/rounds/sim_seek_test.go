package rounds

import (
	"errors"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/founding"
)

// contact asks the process at an address for a session, or to resume one. It follows one hint to another address.
func (p *agentProc) contact(addr string, resume coord.SessionID, limit time.Duration,
	done func(*simConn, *simSession, error),
) {
	p.ask(addr, resume, limit, func(c *simConn, ses *simSession, at string, err error) {
		if at != "" && at != addr {
			p.ask(at, resume, limit, func(c *simConn, ses *simSession, _ string, err2 error) {
				if err2 != nil && (!errors.Is(err2, coord.ErrUnavailable) || errors.Is(err2, coord.ErrReplaced)) {
					err2 = err
				}
				done(c, ses, err2)
			})
			return
		}
		done(c, ses, err)
	})
}

// ask makes one attempt. done gets in at, if the process refuses, the address of a member that may serve.
func (p *agentProc) ask(addr string, resume coord.SessionID, limit time.Duration,
	done func(c *simConn, ses *simSession, at string, err error),
) {
	w := p.w
	c, over := &simConn{node: p.node, peer: w.nodeOf(addr)}, false
	answer := func(ses *simSession, at string, err error) {
		if over || p.dead {
			if ses != nil && !p.dead { // it came too late
				w.send(c, up, func() { c.store.end(ses, "unused") })
			}
			return
		}
		over, c.heard = true, w.now
		done(c, ses, at, err)
	}
	refuse := func(obstacle coord.Obstacle, at string) {
		w.send(c, down, func() { answer(nil, at, &coord.DialError{Addr: addr, Obstacle: obstacle}) })
	}
	if w.now >= p.node.refusing || c.peer == p.node {
		w.send(c, up, func() {
			t := w.partAt(addr)
			switch {
			case t == nil:
				refuse(coord.ObstacleRefused, "")
			case resume != "" && (t.group == nil || t.group.instance != p.instance):
				w.send(c, down, func() { answer(nil, "", coord.ErrReplaced) })
			case t.server == nil:
				at := t.Status.Leader
				if at == "" {
					at = t.referral
				}
				refuse(coord.ObstacleElsewhere, at)
			default:
				c.store = t.server
				p.admit(c, resume, func(ses *simSession, err error) { answer(ses, "", err) })
			}
		})
	}
	p.later(limit, func() {
		if !over {
			answer(nil, "", &coord.DialError{Addr: addr, Obstacle: coord.ObstacleTimeout})
			c.clientGone = true
		}
	})
}

// admit opens or resumes a session at the server of the connection.
func (p *agentProc) admit(c *simConn, resume coord.SessionID, answer func(*simSession, error)) {
	s := c.store
	var ses *simSession
	var err error
	switch {
	case resume == "":
		ses = s.open(p.node, c)
	case !s.resume(resume, c):
		err = coord.ErrSessionLost
	default:
		ses = s.sessions[resume]
	}
	s.reply(c, func() { answer(ses, err) })
}

// nodeOf returns the machine of an address.
func (w *world) nodeOf(addr string) *simNode {
	for _, n := range w.nodes {
		if addr == n.name || len(addr) > len(n.name) && addr[:len(n.name)+1] == n.name+"/" {
			return n
		}
	}
	panic("no machine has the address " + addr)
}

// contactAll asks the processes at all these addresses at once. done gets the first session, or all errors.
func (p *agentProc) contactAll(addrs []string, done func(*simConn, *simSession, []error)) {
	errs, left, found := make([]error, len(addrs)), len(addrs), false
	for i, addr := range addrs {
		p.contact(addr, "", founding.MemberTimeout, func(c *simConn, ses *simSession, err error) {
			left--
			switch errs[i] = err; {
			case ses != nil && found:
				p.w.send(c, up, func() { c.store.end(ses, "unused") })
			case ses != nil:
				found = true
				done(c, ses, nil)
			case left == 0 && !found:
				done(nil, nil, errs)
			}
		})
	}
	if left == 0 {
		done(nil, nil, nil)
	}
}

// seek looks for the store: it resumes a session, or opens one if resume is empty.
func (p *agentProc) seek(resume coord.SessionID) {
	switch {
	case p.part == nil && p.node == p.w.nodes[0]:
		p.listen()
		fallthrough
	case resume == "":
		p.seekNew(p.attempt, p.w.now, 0)
	default:
		denied := map[string]bool{}
		attempt, since := p.attempt, p.w.now
		for i, addr := range p.addrs {
			p.later(time.Duration(i)*30*time.Millisecond, func() {
				if p.attempt == attempt {
					p.seekAt(attempt, since, addr, resume, denied)
				}
			})
		}
	}
}

// seekAt tries to resume a session at an address until that succeeds there or elsewhere, as coord.Client.search.
func (p *agentProc) seekAt(attempt int, since time.Duration, addr string, resume coord.SessionID,
	denied map[string]bool,
) {
	w := p.w
	p.contact(addr, resume, w.between(time.Second, 2*time.Second), func(c *simConn, ses *simSession, err error) {
		denied[addr] = errors.Is(err, coord.ErrReplaced)
		switch {
		case p.attempt != attempt:
		case ses != nil:
			p.attempt++
			p.resumed(c)
		case errors.Is(err, coord.ErrSessionLost):
			p.sessionLost(resume, false)
		case !slices.ContainsFunc(p.addrs, func(a string) bool { return !denied[a] }):
			p.sessionLost(resume, true)
		default:
			p.later(w.between(50*time.Millisecond, 200*time.Millisecond+(w.now-since)/8), func() {
				if p.attempt == attempt {
					p.seekAt(attempt, since, addr, resume, denied)
				}
			})
		}
	})
}

// expect is coord.Client.Expect: the store is probably at addr.
func (p *agentProc) expect(addr string) {
	if !slices.Contains(p.addrs, addr) {
		p.addrs = append([]string{addr}, p.addrs...)
	}
	if p.conn == nil && p.session != "" && !p.dead && p.m != nil {
		p.seekAt(p.attempt, p.w.now, addr, p.session, map[string]bool{})
	}
}

// seekNew tries to open a session, as C10d.Open. It gives up after the join timeout.
func (p *agentProc) seekNew(attempt int, since time.Duration, turn int) {
	w, sent := p.w, p.node.local() // the TTL begins after sent
	opened := func(c *simConn, ses *simSession, _ error) {
		stale := p.attempt != attempt
		switch {
		case stale && ses != nil:
			w.send(c, up, func() { c.store.end(ses, "unused") })
		case stale:
		case ses != nil:
			part := c.store.part
			p.conn = c
			p.setAddrs([]string{part.Addr})
			if t := p.part; t != nil {
				t.yieldToSession(part.group, part.Addr)
			}
			p.begin(ses, sent)
		case w.now-since >= w.cfg.job.JoinTimeout:
			p.giveUp()
		default:
			p.later(w.between(50*time.Millisecond, min(time.Second, 100*time.Millisecond+w.now-since)), func() {
				if p.attempt == attempt {
					p.seekNew(attempt, since, turn+1)
				}
			})
		}
	}
	if t := p.part; t != nil && t.AtEndpoint() {
		t.open(opened)
		return
	}
	if len(p.addrs) == 0 {
		p.setAddrs(nil)
	}
	p.contact(p.addrs[turn%len(p.addrs)], "", founding.MemberTimeout, opened)
}

// setAddrs sets where the store may be, besides the endpoint, which comes last.
func (p *agentProc) setAddrs(addrs []string) {
	endpoint := p.w.nodes[0].name
	p.addrs = append(slices.DeleteFunc(slices.Clone(addrs), func(a string) bool { return a == endpoint }), endpoint)
}

// giveUp ends an agent that has not found the store.
func (p *agentProc) giveUp() {
	p.w.logf("%s agent %d does not find the store", p.node.name, p.pid)
	p.node.gone = p.w.nodes[0].gone // the job is over, and nobody is at the endpoint any more
	p.w.check.notFound(p)
	if p.m == nil {
		p.exit()
		return
	}
	p.m.over = &Ending{Err: rdzv.ErrConnection}
	p.pump()
}
