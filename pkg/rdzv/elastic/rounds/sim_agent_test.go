package rounds

import (
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// agentProc is an agent's process: its member, the client of the store, and the workers.
type agentProc struct {
	w    *world
	node *simNode
	pid  int
	m    *Member
	dead bool

	conn           *simConn
	session        coord.SessionID // empty while there is none
	calls          map[int]*simCall
	nextCall       int
	abandonedCalls int // counts abandoned calls: the store executes none of them after a later call
	attempt        int // number of the attempt to connect
	watches        []*simWatch

	group        *workerGroup // its workers, which run or are about to
	offer        Offer
	failure      *rdzv.Failure
	finished     bool // its workers had done all their work
	writing      bool // a report is being written
	again        bool // the report has changed meanwhile, and must be written again
	entering     bool
	leaving      bool
	leaveWritten bool // the report that it leaves has been written
	ending       bool
	killing      bool // the session is lost: its workers are being killed, then a new session begins
	wake         time.Duration
	acted        Fence
	elector      *elector
	stops        StopMailbox
	loop         actor         // the agent's own loop, which may hang while the driver of its session runs
	inRound      bool          // it was ordered to run a round that has not ended for it
	hangsNext    time.Duration // how long it will hang when it starts its next round
	stoppedRound *simRound     // the round that it was last ordered to stop
	receives     bool          // a receive is scheduled
	watchdog     simWatchdog
	instance     int  // the store instance of its session
	moved        bool // its session is in another store than the one before
	replaced     bool // the session ended because another store replaced its store
	part         *simPart
	addrs        []string // with a group: where the store may be
	exited       bool     // the agent has ended, and only its part in the store is left
}

// start starts an agent on the node.
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

// later schedules do for d from now. It does not run if the process has died by then.
func (p *agentProc) later(d time.Duration, do func()) {
	p.node.agent.timer(p.w.now+d, func() {
		if !p.dead {
			do()
		}
	})
}

// answerChanged handles a batch of the watch of the leader's answer.
func (p *agentProc) answerChanged(b simBatch) {
	for _, c := range b.changes {
		if a, ok := c.value.(Answer); ok && !p.dead && c.key == PrefixAnswer+string(p.session) {
			before := p.m.latest.Fence
			if p.w.plant.answer != nil {
				p.w.plant.answer(p.m, a)
			}
			p.m.HandleAnswer(p.node.local(), a)
			p.w.check.latest(p, before)
			p.pump()
		}
	}
}

// pump ticks the member and executes its orders, as driver.loop does.
func (p *agentProc) pump() {
	if p.dead || p.m == nil || p.exited {
		return
	}
	now := p.node.local()
	if p.w.plant.member != nil {
		p.w.plant.member(p.m, now)
	}
	p.m.Tick(now)
	if !p.killing {
		p.setWatchdog()
	}
	p.executeAll()
	var probeAt OptionalTime
	if !p.killing && !p.w.plant.noProbe {
		probeAt = p.stops.ProbeAgent(now, p.m, zerolog.Nop())
		p.receiveSoon()
	}
	if p.m.dirty {
		p.write()
	}
	if p.m.over != nil && !p.ending {
		p.end()
	}
	next := p.m.NextTick()
	if at := p.m.SearchAt(); p.w.cfg.group && p.session != "" {
		if at.Set && now >= at.At {
			p.part.forget()
			p.sessionLost(p.session, false)
			return
		}
		next.TakeEarlier(at)
	}
	if probeAt.Set && (!next.Set || probeAt.At < next.At) {
		next = probeAt
	}
	if next.Set && !p.dead {
		at := p.node.clock.when(next.At)
		if at <= p.w.now {
			p.w.check.fail("wake", "%s asks to be woken at once, again and again: state %d", p.node.name, p.m.state)
		}
		if p.wake <= p.w.now || at < p.wake {
			p.wake = at
			p.later(at-p.w.now, p.pump)
		}
	}
}

// executeAll executes the member's orders.
func (p *agentProc) executeAll() {
	for _, o := range p.m.TakeOrders() {
		p.execute(o)
	}
	p.receiveSoon()
}

// execute executes one order, as Handler.execute and the agent do.
func (p *agentProc) execute(o Order) {
	switch {
	case o.Run != nil:
		p.w.check.accepted(p, o.Run)
		p.acted, p.inRound = o.Run.Fence, true
		over, instance := p.stops.BeginRound(), p.instance
		if d := p.hangsNext; d > 0 {
			p.hang(d)
		} else {
			p.w.check.watchHang(p)
		}
		p.onLoop(func() {
			if p.w.check.broken != nil {
				return
			}
			if o.Run.Place.JoinStore {
				p.joinStore()
			}
			p.failure = nil
			p.group = newGroup(p, o.Run, instance, over)
		})
	case o.Join:
		p.onLoop(p.joinStore)
	case o.Notice != nil:
		p.w.logf("%s says: %s", p.node.name, o.Notice.Note)
	case o.Warning != "":
		p.w.logf("%s warns: %s", p.node.name, o.Warning)
	case o.Reenter:
		p.enterSoon()
	case o.Stop != nil:
		p.w.logf("%s stops round %d in %v: %s", p.node.name, o.Stop.Round, o.KillIn, o.Stop.Why)
		s := *o.Stop
		if o.KillIn >= 0 {
			s.KillBy = time.Unix(0, int64(p.node.local()+o.KillIn))
		}
		p.stoppedRound = p.w.rounds[simRoundID{p.instance, s.Round}]
		p.stops.Send(s)
	}
}

// write writes the report. Only one write is under way at a time.
func (p *agentProc) write() {
	if p.writing || p.session == "" || p.conn == nil {
		p.again = true
		return
	}
	p.writing, p.again, p.m.dirty = true, false, false
	r, id := p.m.report, p.session
	p.w.logf("%s reports %s round %d/%d silent=%v leaving=%v", p.node.name, r.Phase, r.Fence.Epoch, r.Fence.Round,
		r.Silent, r.Leaving)
	p.commit(0, nil, []simOp{{key: PrefixAgent + string(id), value: r, owned: true}},
		func(_ coord.Revision, err error) {
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
				p.leaveWritten = true
				p.onLoop(p.stopAndExit)
				fallthrough
			default:
				if p.m.dirty || p.again {
					p.write()
				}
			}
		})
}

// enterSoon enters the next round with a new offer, after a short time.
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
		if p.leaving || p.ending || p.group != nil || p.m == nil || p.m.over != nil || p.m.state == ready ||
			p.m.MayDepart() {
			return
		}
		p.w.nonces++
		p.offer = Offer{Addrs: []string{p.node.name}, Port: 1, Nonce: fmt.Sprint("o", p.w.nonces)}
		p.w.logf("%s enters with %s", p.node.name, p.offer.Nonce)
		p.m.Enter(p.node.local(), p.node.node, p.offer, rdzv.Member{Failure: p.failure, Finished: p.finished})
		p.finished = false
		p.failure = nil
		p.pump()
	})
}

// workersEnded records that the last worker of the round has ended. ok says that all have exited with 0.
func (p *agentProc) workersEnded(g *workerGroup, ok bool) {
	if p.dead || p.group != g {
		return
	}
	p.group, p.inRound, p.finished = nil, false, g.finished
	p.w.logf("%s: the workers of round %d have ended, success %v", p.node.name, g.round, ok)
	if ok {
		p.m.Succeed(p.node.local())
		if b := &p.w.barrier; b.closes && len(g.rd.exited) == len(g.rd.groups) && b.rng.IntN(2) == 0 {
			p.m.Close("")
		}
	} else {
		p.m.Stopped()
	}
	p.pump()
	switch {
	case p.dead:
	case p.killing:
		p.renewIfIdle()
	case p.leaving:
		p.stopAndExit()
	case p.ending:
		p.exit()
	case !ok || p.m.stopOrdered:
		p.enterSoon()
	default:
		p.waitAtBarrier()
	}
}

// workerFailed records that a worker has failed while others may still run.
func (p *agentProc) workerFailed(g *workerGroup, f rdzv.Failure) {
	if p.dead || p.group != g {
		return
	}
	p.failure = &f
	if p.leaving {
		g.stop(-1)
		return
	}
	p.m.Fail(p.node.local(), f)
	p.pump()
	g.stop(-1)
}
