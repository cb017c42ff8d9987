package elastic

import (
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// agentProc is an agent's process: the shell around its member, its client of the store, and its workers.
type agentProc struct {
	w    *world
	node *simNode
	pid  int
	m    *member
	dead bool

	conn     *simConn
	session  coord.SessionID // empty before the first, and between two
	calls    map[int]*simCall
	nextCall int
	turn     int // counts the calls that were given up: none of them is done after a later one
	attempt  int // of connecting
	watches  []*simWatch

	job       *group // whose workers run or are about to
	offer     Offer
	blamed    *rdzv.Failure
	writing   bool // a report is on its way
	again     bool // it was changed meanwhile
	entering  bool
	leaving   bool
	told      bool // leaving was written
	ending    bool
	killing   bool // the session is lost: workers are being killed, then a new one begins
	wake      time.Duration
	acted     Fence
	cand      *elector
	h         *Handler      // which sends stops and probes
	loop      actor         // the agent itself, which may hang while the driver of its session goes on
	inRound   bool          // it was told to run a round, and is not done with it
	hangsNext time.Duration // when it is told to run a round, for so long
	toldAt    *simRound     // what it was told to stop last
	receives  bool          // it is about to receive what the handler has sent
	switches  deadMan
	instance  int  // of the store that it has its session in
	moved     bool // it has its session in another store than the one before
	replaced  bool // the session ended because there is another store
}

// simCall is a commit that has not been answered.
type simCall struct {
	conn *simConn
	done func(coord.Revision, error)
}

// start begins an agent on a node.
func (n *simNode) start() {
	w := n.w
	if n.proc != nil || n.gone {
		return
	}
	w.pids++
	p := &agentProc{w: w, node: n, pid: w.pids, calls: map[int]*simCall{}}
	p.loop.w = w
	n.proc = p
	w.logf("%s agent %d starts", n.name, p.pid)
	p.connect("")
}

// connect opens a connection and begins a session, or resumes one.
func (p *agentProc) connect(resume coord.SessionID) {
	w := p.w
	p.attempt++
	attempt := p.attempt
	if p.dead {
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
	c := &simConn{node: p.node}
	answered, sent := false, p.node.local() // the lease begins after sent
	w.send(c, up, func() {
		if resume != "" {
			ok, replaced := w.store.resume(resume, c), p.instance != w.store.instance
			w.send(c, down, func() {
				answered = true
				if p.dead || p.attempt != attempt {
					return
				}
				if !ok {
					p.sessionLost(resume, replaced)
					return
				}
				w.logf("%s resumed %s", p.node.name, resume)
				p.conn, c.heard = c, w.now
				for _, x := range p.watches {
					p.askToWatch(x)
				}
				if p.again {
					p.write()
				}
				p.pump()
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

// later lets the process do something in d, if it lives.
func (p *agentProc) later(d time.Duration, do func()) {
	p.node.agent.timer(p.w.now+d, func() {
		if !p.dead {
			do()
		}
	})
}

// begin uses a new session.
func (p *agentProc) begin(ses *simSession, sent time.Duration) {
	w := p.w
	p.moved = p.m != nil && p.instance != ses.instance
	p.session, p.instance = ses.id, ses.instance
	w.check.sessionBegan(ses, p)
	w.logf("%s agent %d has session %s", p.node.name, p.pid, ses.id)
	first := p.m == nil
	if first {
		p.m = newMember(memberOptions{node: p.node.node, job: p.node.job, ttl: w.cfg.ttl}, sent)
		p.h = &Handler{m: p.m, stops: make(chan rdzv.Stop, 1), log: zerolog.Nop()}
	} else {
		if p.replaced || p.moved {
			p.m.storeReplaced()
			p.acted = Fence{}
		}
		p.replaced, p.moved = false, false
		p.m.sessionRenewed(sent, w.cfg.ttl)
	}
	p.writing, p.again = false, false // what waited to be written was the last session's
	p.watches = nil
	p.watch(&simWatch{prefix: prefixAnswer + string(ses.id), see: p.seeAnswer})
	if w.cfg.etcd {
		p.cand = newElector(p, ses)
	}
	p.keepAlive(ses.id)
	if first || p.m.state != ready {
		p.enterSoon()
	}
	p.pump()
}

// watch begins a watch, which goes on over interruptions.
func (p *agentProc) watch(x *simWatch) {
	p.watches = append(p.watches, x)
	p.askToWatch(x)
}

func (p *agentProc) askToWatch(x *simWatch) {
	w, id := p.w, p.session
	if p.conn != nil && x.session == nil && !x.closed {
		w.send(p.conn, up, func() {
			if ses := w.store.sessions[id]; ses != nil && x.session == nil {
				w.store.watch(ses, x)
			}
		})
	}
}

// keepAlive proves that the agent lives, again and again.
func (p *agentProc) keepAlive(id coord.SessionID) {
	if p.session != id {
		return
	}
	w, sent := p.w, p.node.local()
	if c := p.conn; c != nil {
		w.send(c, up, func() {
			ses := w.store.sessions[id]
			if ses == nil {
				w.send(c, down, func() { p.sessionLost(id, false) })
				return
			}
			w.store.keepAlive(ses)
			for _, x := range w.store.watches {
				if x.session == ses {
					w.store.deliver(x)
				}
			}
			w.send(c, down, func() {
				if !p.dead && p.session == id {
					p.m.recordProof(sent)
					p.pump()
				}
			})
		})
	}
	if c := p.conn; c != nil {
		p.later(w.cfg.ttl/4, func() { p.doubt(c) })
	}
	p.later(w.cfg.ttl/5, func() { p.keepAlive(id) })
}

// doubt gives up a connection over which nothing was heard for long: it may be gone though nobody says so.
func (p *agentProc) doubt(c *simConn) {
	if p.conn == c && p.w.now-c.heard >= p.w.cfg.ttl/4 {
		p.connBroke(c)
	}
}

// commit asks the store for a commit. An answer that does not come within a while is given up where the store is etcd.
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
				p.turn++
			}
			call.done(rev, err)
		}
	}
	turn := p.turn
	do := func() {
		rev, err := coord.Revision(0), coord.ErrSessionLost
		if ses := w.store.ofCommit(id, by); ses != nil {
			if turn < ses.turn && !w.plant.overtaken {
				return // it was given up, and a later one was done
			}
			ses.turn = turn
			rev, err = w.store.commit(ses, by, guards, ops)
		}
		w.send(c, down, func() { answer(rev, err) })
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

// connBroke takes note that the connection is gone.
func (p *agentProc) connBroke(c *simConn) {
	c.clientGone = true
	if p.dead || p.conn != c {
		return
	}
	p.w.logf("%s sees its connection broken", p.node.name)
	p.conn = nil
	for n := 1; n <= p.nextCall; n++ {
		if call := p.calls[n]; call != nil && call.conn == c {
			delete(p.calls, n)
			p.turn++
			call.done(0, coord.ErrUnavailable)
		}
	}
	p.pump()
	if !p.dead && p.session != "" {
		p.connect(p.session)
	}
}

// sessionLost takes note that the store has ended the session: workers are killed at once, then a new one begins.
func (p *agentProc) sessionLost(id coord.SessionID, replaced bool) {
	if p == nil || p.dead || p.session != id {
		return
	}
	p.w.logf("%s hears that session %s is lost, store replaced %v", p.node.name, id, replaced)
	p.session, p.killing, p.replaced = "", true, replaced
	p.attempt++
	if p.cand != nil {
		p.cand.stop()
		p.cand = nil
	}
	if c := p.conn; c != nil {
		c.broken, c.clientGone = true, true
		p.conn = nil
	}
	p.writing, p.again = false, false
	p.calls = map[int]*simCall{}
	if p.inRound {
		p.m.stop(p.node.local(), "the rendezvous considers this node lost", 0)
		p.obeyAll()
	}
	p.renewIfIdle()
}

// renewIfIdle begins a new session once no worker is left.
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

// seeAnswer is told what the watch of the answer tells.
func (p *agentProc) seeAnswer(b simBatch) {
	for _, c := range b.changes {
		if a, ok := c.value.(Answer); ok && !p.dead && c.key == prefixAnswer+string(p.session) {
			before := p.m.latest.Fence
			if p.w.plant.answer != nil {
				p.w.plant.answer(p.m, a)
			}
			p.m.handleAnswer(p.node.local(), a)
			p.w.check.latest(p, before)
			p.pump()
		}
	}
}

// pump does what the member asks for.
func (p *agentProc) pump() {
	if p.dead || p.m == nil {
		return
	}
	now := p.node.local()
	if p.w.plant.member != nil {
		p.w.plant.member(p.m, now)
	}
	p.m.tick(now)
	if !p.killing {
		p.setDeadMan()
	}
	p.obeyAll()
	var probeAt optionalTime
	if !p.killing && !p.w.plant.noProbe {
		probeAt = p.h.probeAgent(now)
		p.receiveSoon()
	}
	if p.m.dirty {
		p.write()
	}
	if p.m.over != nil && !p.ending {
		p.end()
	}
	next := p.m.nextTick()
	if probeAt.set && (!next.set || probeAt.at < next.at) {
		next = probeAt
	}
	if next.set && !p.dead {
		at := p.node.clock.when(next.at)
		if at <= p.w.now {
			p.w.check.fail("wake", "%s is to be woken at once, again and again: state %d", p.node.name, p.m.state)
		}
		if p.wake <= p.w.now || at < p.wake {
			p.wake = at
			p.later(at-p.w.now, p.pump)
		}
	}
}

func (p *agentProc) obeyAll() {
	for _, o := range p.m.takeOrders() {
		p.obey(o)
	}
	p.receiveSoon()
}

func (p *agentProc) obey(o order) {
	switch {
	case o.run != nil:
		p.w.check.accepted(p, o.run)
		p.acted, p.inRound = o.run.Fence, true
		p.h.roundOver = make(chan struct{})
		over, instance := p.h.roundOver, p.instance
		if d := p.hangsNext; d > 0 {
			p.hang(d)
		} else {
			p.w.check.watchHang(p)
		}
		p.onLoop(func() {
			p.blamed = nil
			p.job = newGroup(p, o.run, instance, over)
		})
	case o.notice != nil:
		p.w.logf("%s says: %s", p.node.name, o.notice.Note)
	case o.reenter:
		p.enterSoon()
	case o.stop != nil:
		p.w.logf("%s stops round %d in %v: %s", p.node.name, o.stop.Round, o.killIn, o.stop.Why)
		s := *o.stop
		if o.killIn >= 0 {
			s.KillBy = time.Unix(0, int64(p.node.local()+o.killIn))
		}
		p.toldAt = p.w.rounds[simRoundID{p.instance, s.Round}]
		p.h.sendStop(s)
	}
}

// write writes the report, one at a time.
func (p *agentProc) write() {
	if p.writing || p.session == "" || p.conn == nil {
		p.again = true
		return
	}
	p.writing, p.again, p.m.dirty = true, false, false
	r, id := p.m.report, p.session
	p.w.logf("%s reports %s round %d/%d silent=%v leaving=%v", p.node.name, r.Phase, r.Fence.Epoch, r.Fence.Round, r.Silent, r.Leaving)
	p.commit(0, nil, []simOp{{key: prefixAgent + string(id), value: r, owned: true}}, func(_ coord.Revision, err error) {
		if p.session != id {
			return
		}
		p.writing = false
		switch {
		case errors.Is(err, coord.ErrSessionLost):
			p.sessionLost(id, false)
		case err != nil:
			p.m.dirty = true
			if p.conn != nil {
				p.write()
			}
		case r.Leaving:
			p.told = true
			p.onLoop(p.goAway)
			fallthrough
		default:
			if p.m.dirty || p.again {
				p.write()
			}
		}
	})
}

// enterSoon asks for the next round, with a new offer.
func (p *agentProc) enterSoon() {
	if p.entering || p.leaving || p.ending {
		return
	}
	p.entering = true
	d := p.w.between(0, 30*time.Millisecond)
	if !p.w.calm && p.w.chance(p.w.cfg.slowEnter) {
		d = p.w.between(0, 20*time.Second)
		p.w.check.slow(p)
	}
	p.loopTimer(p.w.now+d, func() {
		p.entering = false
		if p.leaving || p.ending || p.job != nil || p.m == nil || p.m.over != nil || p.m.state == ready {
			return
		}
		p.w.nonces++
		p.offer = Offer{Addrs: []string{p.node.name}, Port: 1, Nonce: fmt.Sprint("o", p.w.nonces)}
		p.w.logf("%s enters with %s", p.node.name, p.offer.Nonce)
		p.m.enter(p.node.local(), p.node.node, p.offer, p.blamed)
		p.blamed = nil
		p.pump()
	})
}

// workersGone takes note that no worker of the round is left. ok: all have exited with 0.
func (p *agentProc) workersGone(g *group, ok bool) {
	if p.dead || p.job != g {
		return
	}
	p.job, p.inRound = nil, false
	p.w.logf("%s: no worker of round %d is left, success %v", p.node.name, g.round, ok)
	if ok {
		p.m.succeed(p.node.local())
	} else {
		p.m.stopped()
	}
	p.pump()
	switch {
	case p.dead:
	case p.killing:
		p.renewIfIdle()
	case p.leaving:
		p.goAway()
	case p.ending:
		p.exit()
	case !ok || p.m.stopOrdered:
		p.enterSoon()
	}
}

// workerFailed takes note that a worker has failed while others may still run.
func (p *agentProc) workerFailed(g *group, f rdzv.Failure) {
	if p.dead || p.job != g {
		return
	}
	p.blamed = &f
	if p.leaving {
		g.stop(-1)
		return
	}
	p.m.fail(p.node.local(), f)
	p.pump()
	g.stop(-1)
}
