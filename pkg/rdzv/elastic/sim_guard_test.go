package elastic

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// deadMan is the timer that an agent shares with its guard. The kernel keeps it.
type simWatchdog struct {
	by     optionalTime // that the agent knows it to be set to
	turn   int          // counts settings
	armed  bool         // and the guard has not said that it fired
	passed bool         // no worker may be started
	disarm bool         // it is to be disarmed once the guard has said so
}

// setDeadMan tells the guard by when to kill the workers in the agent's place.
func (p *agentProc) setWatchdog() {
	d, by := &p.watchdog, p.m.deadline()
	if p.w.plant.deadline != nil {
		by = p.w.plant.deadline(p.m)
	}
	if by == d.by {
		return
	}
	d.by = by
	if d.passed && d.armed {
		d.disarm = !by.set
		return
	}
	d.turn++
	d.armed, d.passed = by.set, false
	if !by.set {
		return
	}
	turn := d.turn
	p.w.at(p.node.clock.when(by.at), func() {
		if d.turn == turn && !p.dead {
			d.passed = true
			p.node.guard.do(true, p.guardKills)
		}
	})
}

// guardKills is what the guard does once the deadline has passed.
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

// killedByGuard takes note of the end of workers that the agent has not stopped.
func (p *agentProc) killedByGuard(g *group) {
	if p.leaving || p.ending || p.killing || p.m.state != busy {
		return
	}
	f := rdzv.Failure{Failure: failure.Failure{Host: p.node.name, GlobalRank: g.rank, ExitCode: -9}, Grade: 1}
	p.failure = &f
	p.m.fail(p.node.local(), f)
}

// late reports whether no worker of the round may be started now.
func (g *group) late() bool {
	over := false
	select {
	case <-g.over:
		over = !g.w.plant.noOver
	default:
	}
	if over {
		g.w.logf("%s does not start workers of round %d any more", g.node.name, g.round)
		g.phase = forking // and hears why
		g.proc.receiveSoon()
		return true
	}
	if g.proc.watchdog.passed && !g.w.plant.noLate { // the guard may still be killing what it finds
		g.proc.loopTimer(g.w.now+100*time.Millisecond, g.fork)
		return true
	}
	return false
}

// unguarded returns until when workers of the node may outlive their lease, because guard and agent stand still
// together, or have a moment ago.
func (n *simNode) unguarded() time.Duration {
	if n.guard.frozen && (n.agent.frozen || n.hung()) {
		n.unguardedUntil = n.w.now + time.Second
	}
	return n.unguardedUntil
}

// freezeGuard lets a guard stand still, and sometimes its agent too.
func freezeGuard(w *world) {
	n := w.victim()
	if n == nil || n.guard.frozen {
		return
	}
	d := w.outage()
	w.logf("the guard of %s stands still for %v", n.name, d)
	n.guard.freeze(d)
	w.after(d-1, func() { n.unguarded() })
	if w.chance(0.2) {
		freezeAgentOf(n)
	}
}

// killBoth kills agent and guard at the same instant: the kernel kills the workers, and nobody tells the store.
func killBoth(w *world) {
	n := w.victim()
	if n == nil {
		return
	}
	w.logf("%s agent %d and its guard are killed", n.name, n.proc.pid)
	w.check.forgive(n, "killed")
	n.proc.orphan(5*time.Millisecond, func() {})
	n.proc.die()
	n.restartAfter(w.between(50*time.Millisecond, w.cfg.restartDelay))
}
