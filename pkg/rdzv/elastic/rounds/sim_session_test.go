package rounds

import (
	"errors"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// simCall is a commit without an answer yet.
type simCall struct {
	conn *simConn
	done func(coord.Revision, error)
}

// connect opens a connection and a session, or resumes a session.
func (p *agentProc) connect(resume coord.SessionID) {
	w := p.w
	p.attempt++
	attempt := p.attempt
	if p.dead {
		return
	}
	if w.cfg.group {
		p.seek(resume)
		return
	}
	if !w.store.up || w.now < p.node.refusing {
		p.later(w.between(50*time.Millisecond, 150*time.Millisecond), func() {
			if p.attempt == attempt {
				p.connect(resume)
			}
		})
		return
	}
	c := &simConn{node: p.node, store: w.store}
	answered, sent := false, p.node.local() // the TTL begins after sent
	w.send(c, up, func() {
		if resume != "" {
			ok, replaced := w.store.resume(resume, c), p.instance != w.store.instance
			w.send(c, down, func() {
				answered = true
				switch {
				case p.dead || p.attempt != attempt:
				case !ok:
					p.sessionLost(resume, replaced)
				default:
					p.resumed(c)
				}
			})
			return
		}
		ses := w.store.open(p.node, c)
		w.send(c, down, func() {
			answered = true
			if !p.dead && p.attempt == attempt {
				p.conn, c.heard = c, w.now
				p.begin(ses, sent)
			}
		})
	})
	p.later(w.between(80*time.Millisecond, time.Second), func() {
		if !answered && p.attempt == attempt {
			c.broken, c.clientGone = true, true
			p.connect(resume)
		}
	})
}

// resumed goes on with the session over another connection.
func (p *agentProc) resumed(c *simConn) {
	p.w.logf("%s resumed %s", p.node.name, p.session)
	p.conn, c.heard = c, p.w.now
	for _, x := range p.watches {
		p.askToWatch(x)
	}
	if p.again {
		p.write()
	}
	p.pump()
}

// begin starts to use a new session.
func (p *agentProc) begin(ses *simSession, sent time.Duration) {
	w := p.w
	p.moved = p.m != nil && p.instance != ses.instance
	p.session, p.instance = ses.id, ses.instance
	w.check.sessionBegan(ses, p)
	w.logf("%s agent %d has session %s", p.node.name, p.pid, ses.id)
	first := p.m == nil
	if first {
		p.m = NewMember(MemberOptions{Node: p.node.node, Job: p.node.job, TTL: w.cfg.ttl}, sent)
		p.stops = NewStopMailbox()
	} else {
		if p.replaced || p.moved {
			p.m.StoreReplaced(p.node.local())
			p.acted = Fence{}
		}
		p.replaced, p.moved = false, false
		p.m.SessionRenewed(sent, w.cfg.ttl)
	}
	p.writing, p.again = false, false // unwritten reports belonged to the last session
	p.watches = nil
	p.watch(&simWatch{prefix: PrefixAnswer + string(ses.id), see: p.answerChanged})
	if w.cfg.group {
		p.watch(&simWatch{prefix: KeyStore, see: p.storeMoved})
	}
	if w.cfg.etcd {
		p.elector = newElector(p, ses)
	}
	p.keepAlive(ses.id)
	if first || p.m.state == outside {
		p.enterSoon()
	}
	p.pump()
}

// watch starts a watch that survives reconnects.
func (p *agentProc) watch(x *simWatch) {
	p.watches = append(p.watches, x)
	p.askToWatch(x)
}

// askToWatch sends the watch to the store.
func (p *agentProc) askToWatch(x *simWatch) {
	w, c, id := p.w, p.conn, p.session
	if c != nil && (x.session == nil || x.store != c.store) && !x.closed {
		w.send(c, up, func() {
			if w.cfg.group && p.conn != c {
				return // the agent has another connection by now, or none
			}
			if ses := c.store.sessions[id]; ses != nil && (x.session == nil || x.store != c.store) {
				c.store.watch(ses, x)
			}
		})
	}
}

// keepAlive renews the session periodically.
func (p *agentProc) keepAlive(id coord.SessionID) {
	if p.session != id {
		return
	}
	w, sent := p.w, p.node.local()
	if c := p.conn; c != nil {
		w.send(c, up, func() {
			s := c.store
			ses := s.sessions[id]
			if ses == nil {
				s.reply(c, func() { p.sessionLost(id, false) })
				return
			}
			s.keepAlive(ses)
			for _, x := range s.watches {
				if x.session == ses {
					s.deliver(x)
				}
			}
			answer := func() {
				if !p.dead && p.session == id {
					p.m.RecordProof(p.node.local(), sent)
					p.pump()
				}
			}
			if w.plant.fromMemory {
				w.send(c, down, answer)
				return
			}
			s.reply(c, answer)
		})
	}
	if c := p.conn; c != nil {
		p.later(w.cfg.ttl/4, func() { p.checkConnection(c) })
	}
	p.later(w.cfg.ttl/5, func() { p.keepAlive(id) })
}

// checkConnection abandons a connection that has been silent for long: it may be broken without a reset.
func (p *agentProc) checkConnection(c *simConn) {
	if p.conn == c && p.w.now-c.heard >= p.w.cfg.ttl/4 {
		p.connectionBroken(c)
	}
}

// commit sends a commit to the store. With etcd, a commit without an answer is abandoned after giveUp.
func (p *agentProc) commit(by coord.Revision, guards []coord.Guard, ops []simOp, done func(coord.Revision, error)) {
	w, c, id := p.w, p.conn, p.session
	if c == nil || id == "" {
		p.later(10*time.Millisecond, func() { done(0, coord.ErrUnavailable) })
		return
	}
	p.nextCall++
	n := p.nextCall
	p.calls[n] = &simCall{c, done}
	answer := func(rev coord.Revision, err error) {
		if call := p.calls[n]; call != nil && !p.dead {
			delete(p.calls, n)
			if errors.Is(err, coord.ErrUnavailable) {
				p.abandonedCalls++
			}
			call.done(rev, err)
		}
	}
	turn := p.abandonedCalls
	do := func() {
		rev, err := coord.Revision(0), coord.ErrSessionLost
		if ses := c.store.sessionForCommit(id, by); ses != nil {
			if turn < ses.abandonedCalls && !w.plant.overtaken {
				return // this call was abandoned, and a later one has been executed
			}
			ses.abandonedCalls = turn
			rev, err = c.store.commit(ses, by, guards, ops)
		}
		c.store.reply(c, func() { answer(rev, err) })
	}
	if !w.cfg.etcd {
		w.send(c, up, do)
		return
	}
	if !w.calm && w.chance(w.cfg.stuck) {
		w.sendAside(c, up, w.between(10*time.Millisecond, 15*time.Second), do)
	} else {
		w.send(c, up, do)
	}
	p.later(w.cfg.giveUp, func() { answer(0, coord.ErrUnavailable) })
}

// connectionBroken handles the loss of the connection.
func (p *agentProc) connectionBroken(c *simConn) {
	c.clientGone = true
	if p.dead || p.conn != c {
		return
	}
	p.w.logf("%s notices that its connection is broken", p.node.name)
	p.conn = nil
	for n := 1; n <= p.nextCall; n++ {
		if call := p.calls[n]; call != nil && call.conn == c {
			delete(p.calls, n)
			p.abandonedCalls++
			call.done(0, coord.ErrUnavailable)
		}
	}
	p.pump()
	if !p.dead && p.session != "" {
		p.connect(p.session)
	}
}

// sessionLost handles the end of the session in the store: the agent kills its workers at once, then opens a new
// session.
func (p *agentProc) sessionLost(id coord.SessionID, replaced bool) {
	if p == nil || p.dead || p.session != id {
		return
	}
	p.w.logf("%s learns that session %s is lost, store replaced %v", p.node.name, id, replaced)
	p.session, p.killing, p.replaced = "", true, replaced
	p.attempt++
	if p.elector != nil {
		p.elector.stop()
		p.elector = nil
	}
	if c := p.conn; c != nil {
		c.broken, c.clientGone = true, true
		p.conn = nil
	}
	p.writing, p.again = false, false
	p.calls = map[int]*simCall{}
	if p.inRound {
		p.m.SessionLost(p.node.local())
		p.executeAll()
	}
	p.renewIfIdle()
}

// renewIfIdle opens a new session once every worker has ended.
func (p *agentProc) renewIfIdle() {
	if p.killing && !p.inRound && !p.dead {
		p.killing = false
		if p.leaving || p.ending {
			p.exit()
			return
		}
		p.connect("")
	}
}
