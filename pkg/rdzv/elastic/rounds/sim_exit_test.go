package rounds

import (
	"errors"
	"fmt"
	"time"
)

// terminate handles SIGTERM.
func (p *agentProc) terminate() {
	if p.dead || p.leaving || p.ending {
		return
	}
	p.w.logf("%s agent %d gets SIGTERM", p.node.name, p.pid)
	p.leaving = true
	if p.m == nil {
		p.exit()
		return
	}
	p.m.Leave(p.node.local())
	p.pump()
	p.loopTimer(p.w.now+500*time.Millisecond, func() { // the store may be down
		if !p.leaveWritten {
			p.leaveWritten = true
			p.stopAndExit()
		}
	})
}

// stopAndExit stops the workers, then exits, once the report that the agent leaves has been written.
func (p *agentProc) stopAndExit() {
	switch {
	case p.dead || !p.leaving || !p.leaveWritten:
	case p.group != nil:
		p.group.stop(-1)
	default:
		p.exit()
	}
}

// end ends the agent once its member has an Ending.
func (p *agentProc) end() {
	p.ending = true
	if o := p.m.over.Outcome; o != nil {
		p.w.check.outcomeSeen(p, o)
		text := fmt.Sprintf("%s/%d", o.Ending, o.Restarts)
		p.node.outcome = &text
	} else if p.leftBarrier() {
		p.w.logf("%s agent %d leaves the exit barrier: %q %v", p.node.name, p.pid, p.m.over.Others, p.m.over.Err)
		p.w.check.left(p)
	} else {
		p.w.logf("%s agent %d ends: %v", p.node.name, p.pid, p.m.over.Err)
		p.w.check.gaveUp(p, p.m.over.Err)
	}
	p.onLoop(func() {
		if p.group == nil {
			p.exit()
		} else if p.m.over.Outcome == nil {
			p.group.kill()
		}
	})
}

// exit ends the process. It closes the session if it can reach the store.
func (p *agentProc) exit() {
	if p.dead || p.exited {
		return
	}
	w, id := p.w, p.session
	w.logf("%s agent %d exits", p.node.name, p.pid)
	if c := p.conn; c != nil && id != "" {
		w.send(c, up, func() {
			if ses := c.store.sessions[id]; ses != nil {
				c.store.end(ses, "closed")
			}
		})
	}
	if t := p.part; t != nil {
		p.exited, p.session = true, ""
		t.leave(p.m != nil && p.m.over != nil && p.m.over.Outcome != nil, p.exitNow)
		return
	}
	p.exitNow()
}

// exitNow ends the process, and starts the node's next one if there should be one.
func (p *agentProc) exitNow() {
	w := p.w
	again := (p.m == nil || p.m.over == nil || p.m.over.Outcome == nil) && !p.leftBarrier()
	p.die()
	var refused *RefusedError
	if p.m != nil && p.m.over != nil && (errors.As(p.m.over.Err, &refused) || p.m.latest.Kind == Replace) {
		again = false
	}
	if w.calm && p.m != nil && p.m.over != nil && errors.As(p.m.over.Err, new(*FinishedError)) {
		again = false // the next agent would be refused likewise
	}
	if !again && p.m != nil && p.m.over != nil && p.m.over.Outcome != nil && p.node.launches < w.cfg.launches {
		p.node.nextLaunch()
		again = true
	}
	if again && !p.node.gone {
		p.node.restartAfter(w.between(100*time.Millisecond, w.cfg.restartDelay))
	} else {
		p.node.gone = true
	}
}

// die ends the process at once.
func (p *agentProc) die() {
	if p.dead {
		return
	}
	p.dead = true
	if p.part != nil {
		p.part.stopServing()
	}
	if p.elector != nil {
		p.elector.stop()
	}
	if c := p.conn; c != nil {
		c.clientGone = true
		p.w.send(c, up, func() { c.store.connectionBroken(c) })
		c.broken = true
	}
	p.node.proc = nil
	p.w.check.died(p)
}

// nextLaunch moves the node to the next launch. All agents of a launch learn the same outcome, restarted ones too.
func (n *simNode) nextLaunch() {
	n.launches++
	n.node.Launch = Launch{ID: fmt.Sprint("launch", n.launches), Restarts: true}
}

// restartAfter starts a new agent on the node after d.
func (n *simNode) restartAfter(d time.Duration) {
	if n.restartPending {
		return
	}
	n.restartPending = true
	n.w.after(d, func() {
		n.restartPending = false
		n.start()
	})
}
