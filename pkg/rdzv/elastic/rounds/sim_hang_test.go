package rounds

import "time"

// onLoop runs do in the agent's loop, once the agent neither is paused nor hangs.
func (p *agentProc) onLoop(do func()) {
	p.node.agent.do(false, func() { p.inLoop(false, do) })
}

// loopTimer schedules do in the agent's loop. It runs late if the agent hangs.
func (p *agentProc) loopTimer(at time.Duration, do func()) {
	p.node.agent.timer(at, func() { p.inLoop(true, do) })
}

func (p *agentProc) inLoop(timer bool, do func()) {
	p.loop.do(timer, func() {
		if !p.dead {
			do()
		}
	})
}

// hung reports whether the node's agent hangs.
func (n *simNode) hung() bool { return n.proc != nil && n.proc.loop.frozen }

// receiveSoon lets the agent receive a Stop that waits.
func (p *agentProc) receiveSoon() {
	if !p.receives && len(p.stops.C) > 0 {
		p.receives = true
		p.onLoop(p.receive)
	}
}

// receive acts on the newest Stop.
func (p *agentProc) receive() {
	p.receives = false
	if p.group != nil && p.group.phase == preparing {
		return
	}
	select {
	case s := <-p.stops.C:
		killIn := time.Duration(-1)
		if !s.KillBy.IsZero() {
			killIn = max(0, time.Duration(s.KillBy.UnixNano())-p.node.local())
		}
		switch {
		case s.Round == NoRound:
		case p.group != nil && s.Preemption != nil && s.Round == p.group.round && !p.leaving:
			p.group.save(killIn)
		case p.group != nil:
			p.group.stop(killIn)
		case !p.ending && p.m.over == nil:
			p.enterSoon()
		}
	default:
	}
}

// hang makes an agent hang, as a hanging file system does. Its session stays alive.
func hang(w *world) {
	n := w.victim()
	if n == nil || n.agent.frozen {
		return
	}
	d := w.between(10*time.Millisecond, 4*w.cfg.job.Rejoin)
	if w.chance(0.5) { // when it starts its next workers
		n.proc.hangsNext = d
		return
	}
	n.proc.hang(d)
}

// hang makes the agent hang for d.
func (p *agentProc) hang(d time.Duration) {
	w, n := p.w, p.node
	p.hangsNext = 0
	for _, other := range w.nodes {
		if other.hung() { // one at a time: if all agents hang, the leader waits
			return
		}
	}
	w.logf("the agent of %s hangs for %v", n.name, d)
	w.check.forgive(n, "hangs")
	p.loop.frozen, p.loop.until = true, w.now+d
	n.unguarded()
	w.check.watchHang(p)
	p.later(d, func() {
		w.logf("the agent of %s responds again", n.name)
		n.unguarded()
		p.loop.thaw()
	})
}

// watchHang checks that the others do not wait for an agent that hangs before it has started its workers.
func (c *checker) watchHang(p *agentProc) {
	w, n := c.w, p.node
	if !p.loop.frozen || w.cfg.stuck > 0 || p.m == nil || p.m.state != busy {
		return
	}
	round := simRoundID{p.instance, p.m.fence.Round}
	rd, t := w.rounds[round], c.term
	found := 2*p.m.report.Job.Rejoin + 5*time.Second
	if p.loop.until < w.now+found || len(rd.groups) < 2 {
		return
	}
	troubled := c.faults
	w.after(found, func() {
		goesOn := c.current == rd && c.term == t && !t.over && t.l.state == running && !rd.started
		quiet := c.faults == troubled || w.cfg.profile == "hung agents"
		if goesOn && quiet && n.proc == p && p.loop.frozen {
			c.fail("liveness", "the agent of %s has not responded for %v, and round %v still runs", n.name, found,
				round)
		}
	})
}
