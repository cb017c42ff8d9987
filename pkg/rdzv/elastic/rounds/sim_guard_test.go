package rounds

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// simWatchdog is the timer that an agent shares with its guard. The kernel keeps it.
type simWatchdog struct {
	by     OptionalTime // the deadline that the agent has set
	turn   int          // counts how often it was set
	armed  bool         // it is set, and the guard has not reported that it fired
	passed bool         // the deadline has passed: no worker may be started
	disarm bool         // to be disarmed once the guard has reported
}

// setWatchdog sets when the guard kills the workers in the agent's place.
func (p *agentProc) setWatchdog() {
	d, by := &p.watchdog, p.m.Deadline()
	if p.w.plant.deadline != nil {
		by = p.w.plant.deadline(p.m)
	}
	if by == d.by {
		return
	}
	d.by = by
	if d.passed && d.armed {
		d.disarm = !by.Set
		return
	}
	d.turn++
	d.armed, d.passed = by.Set, false
	if !by.Set {
		return
	}
	turn := d.turn
	p.w.at(p.node.clock.when(by.At), func() {
		if d.turn == turn && !p.dead {
			d.passed = true
			p.node.guard.do(true, p.guardKills)
		}
	})
}

// guardKills kills the workers, which the guard does at the deadline.
func (p *agentProc) guardKills() {
	d := &p.watchdog
	if p.dead || !d.passed {
		return
	}
	w, n := p.w, p.node
	for _, g := range n.liveGroups {
		if g.proc == p && g.phase == alive && !g.byGuard {
			w.logf("%s: the guard kills the workers of round %d", n.name, g.round)
			w.watchdogKills++
			w.check.forgive(n, "killed by the guard")
			g.byGuard = true
			g.kill()
		}
	}
	n.agent.do(false, func() {
		d.armed = false
		if d.disarm {
			d.disarm, d.passed = false, false
		}
	})
}

// killedByGuard records the end of workers that the agent has not stopped.
func (p *agentProc) killedByGuard(g *workerGroup) {
	if p.leaving || p.ending || p.killing || p.m.state != busy {
		return
	}
	f := rdzv.Failure{Failure: failure.Failure{Host: p.node.name, GlobalRank: g.rank, ExitCode: -9}, Grade: 1}
	p.failure = &f
	p.m.Fail(p.node.local(), f)
}

// late reports whether no worker of the round may be started now.
func (g *workerGroup) late() bool {
	over := false
	select {
	case <-g.over:
		over = !g.w.plant.noOver
	default:
	}
	if over {
		g.w.logf("%s does not start the workers of round %d, which is over", g.node.name, g.round)
		g.phase = forking // so that the agent receives the Stop
		g.proc.receiveSoon()
		return true
	}
	if g.proc.watchdog.passed && !g.w.plant.noLate { // the guard may still be killing workers
		g.proc.loopTimer(g.w.now+100*time.Millisecond, g.fork)
		return true
	}
	return false
}

// unguarded returns until when workers of the node may outlive their session, because guard and agent are paused
// together, or were a moment ago.
func (n *simNode) unguarded() time.Duration {
	if n.guard.frozen && (n.agent.frozen || n.hung()) {
		n.unguardedUntil = n.w.now + time.Second
	}
	return n.unguardedUntil
}

// freezeGuard pauses a guard, and sometimes its agent too.
func freezeGuard(w *world) {
	n := w.victim()
	if n == nil || n.guard.frozen {
		return
	}
	d := w.outage()
	w.logf("the guard of %s is paused for %v", n.name, d)
	n.guard.freeze(d)
	w.after(d-1, func() { n.unguarded() })
	if w.chance(0.2) {
		w.freezeAgent(n)
	}
}

// killBoth kills the node's agent and guard. The kernel kills the workers, and nobody ends the session.
func (n *simNode) killBoth() {
	n.proc.orphan(5*time.Millisecond, func() {})
	n.proc.die()
}

// killBoth kills agent and guard at the same time. The kernel kills the workers, and nobody ends the session.
func killBoth(w *world) {
	n := w.victim()
	if n == nil {
		return
	}
	w.logf("%s agent %d and its guard are killed", n.name, n.proc.pid)
	w.check.forgive(n, "killed")
	n.killBoth()
	n.restartAfter(w.between(50*time.Millisecond, w.cfg.restartDelay))
}
