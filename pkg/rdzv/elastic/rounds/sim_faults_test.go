package rounds

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// fault is something that can go wrong.
type fault struct {
	name string
	do   func(w *world)
}

// victim draws a node whose agent lives.
func (w *world) victim() *simNode {
	for range 8 {
		if n := w.nodes[w.rng.IntN(len(w.nodes))]; n.proc != nil && !n.proc.exited {
			return n
		}
	}
	return nil
}

// outage draws how long a fault lasts: in half of the cases below a second, else up to three times the TTL.
func (w *world) outage() time.Duration {
	if w.chance(0.5) {
		return w.between(10*time.Millisecond, time.Second)
	}
	return w.between(time.Second, 3*w.cfg.ttl)
}

// startDuplicate starts, on another machine, an agent with the identity of one that may be alive.
func startDuplicate(w *world) {
	n := w.victim()
	if n == nil || len(w.nodes) >= 2*w.cfg.nodes || w.cfg.job.Static && w.chance(0.5) {
		return
	}
	other := w.newNode(len(w.nodes))
	other.node.Identity, other.node.Hint = n.node.Identity, n.node.Hint
	w.logf("%s joins with the identity of %s", other.name, n.name)
	w.nodes = append(w.nodes, other)
	w.check.forgive(n, "replaced")
	other.start()
}

// on returns the fault that does this to the node that pick draws.
func on(pick func(*world) *simNode, do func(*world, *simNode)) func(*world) {
	return func(w *world) {
		if n := pick(w); n != nil {
			do(w, n)
		}
	}
}

// Faults of any node, of the one that leads, and of the one that serves the store.
var (
	kill         = on((*world).victim, (*world).kill)
	killLeader   = on((*world).leading, (*world).kill)
	killServer   = on((*world).serving, (*world).kill)
	cut          = on((*world).victim, (*world).cutOff)
	cutLeader    = on((*world).leading, (*world).cutOff)
	cutServer    = on((*world).serving, (*world).cutOff)
	freezeAgent  = on((*world).victim, (*world).freezeAgent)
	freezeServer = on((*world).serving, (*world).freezeAgent)
)

// kill kills the node's agent. The guard kills the workers and ends the session. Another agent may start before that.
func (w *world) kill(n *simNode) {
	w.killBefore(n, func() {})
	n.restartAfter(w.between(50*time.Millisecond, w.cfg.restartDelay))
}

// killBefore kills the node's agent. It calls done when the guard begins to end the session, after handing over.
func (w *world) killBefore(n *simNode, done func()) {
	p := n.proc
	w.logf("%s agent %d is killed", n.name, p.pid)
	w.check.forgive(n, "killed")
	sweep := 50 * time.Millisecond
	if !w.calm && w.chance(0.1) {
		sweep = w.cfg.slowSweep()
	}
	estate, id, addrs := p.estate(), p.session, p.addrs
	notice := func() {
		n.guard.do(false, func() {
			if estate == nil {
				n.noticeExit(id, addrs)
				done()
				return
			}
			estate.handOver(func() { n.noticeExit(id, addrs); done() })
		})
	}
	if w.plant.earlyNotice {
		notice()
		notice = func() {}
	}
	p.orphan(sweep, notice)
	p.die()
}

// slowSweep is how long the kernel may take to end the workers of an agent that was killed.
func (c *simConfig) slowSweep() time.Duration { return c.ttl / 8 }

// noticeExit tries for 3 s to end the agent's session. The guard does that once the agent and its workers are gone.
func (n *simNode) noticeExit(id coord.SessionID, addrs []string) {
	w := n.w
	until := w.now + 3*time.Second
	var try func()
	try = func() {
		if !w.cfg.group {
			n.noticeExitTo(&simConn{node: n, store: w.store}, id)
		}
		for _, addr := range addrs {
			n.noticeExitTo(&simConn{node: n, peer: w.nodeOf(addr)}, id)
		}
		if w.now < until {
			w.after(w.between(100*time.Millisecond, time.Second), try)
		}
	}
	if id != "" {
		try()
	}
}

func (n *simNode) noticeExitTo(c *simConn, id coord.SessionID) {
	c.broken = n.w.now < n.refusing
	n.w.send(c, up, func() {
		s := c.store
		if s == nil && c.peer.proc != nil && c.peer.proc.part != nil {
			s = c.peer.proc.part.server
		}
		if s == nil {
			return
		}
		if ses := s.sessions[id]; ses != nil {
			s.end(ses, "its node's guard has seen its end")
		}
	})
}

// orphan ends the workers of an agent that dies, within the given time, and then calls done.
func (p *agentProc) orphan(within time.Duration, done func()) {
	if g := p.group; g != nil {
		g.orphan, g.orphanedInPause = true, g.node.workers.frozen
		if g.phase < alive {
			g.phase = gone
		} else {
			g.stopped = true
			p.w.after(p.w.between(0, within), func() {
				g.finish(false)
				done()
			})
			return
		}
	}
	done()
}

// powerOff ends everything on the node at once. Its machine forgets what it had in memory.
func (n *simNode) powerOff() {
	n.place = simPlace{}
	n.proc.orphan(0, func() {})
	n.proc.die()
}

// losePower ends everything on a node at once.
func losePower(w *world) {
	n := w.victim()
	if n == nil {
		return
	}
	w.logf("%s loses power", n.name)
	w.check.forgive(n, "power")
	n.powerOff()
	off := w.between(time.Second, 4*w.cfg.ttl)
	if w.cfg.profile == "one at a time" {
		off *= 3
	}
	n.restartAfter(off)
}

// terminateAgent sends SIGTERM to an agent.
func terminateAgent(w *world) {
	if n := w.victim(); n != nil {
		w.check.forgive(n, "term")
		p := n.proc
		p.onLoop(p.terminate)
	}
}

// blockInbound blocks connections to a node's worker store for a while.
func blockInbound(w *world) {
	if n := w.victim(); n != nil && !n.inboundBlocked {
		d := w.between(time.Second, 3*w.cfg.job.Rejoin)
		w.logf("no node reaches the worker stores of %s for %v", n.name, d)
		n.inboundBlocked, w.hadBlocked = true, true
		w.after(d, func() { n.inboundBlocked = n.blockedForGood && n.inboundBlocked })
	}
}

// blockOutbound blocks a node's connections to worker stores for a while.
func blockOutbound(w *world) {
	if n := w.victim(); n != nil && !n.outboundBlocked {
		d := w.between(time.Second, 3*w.cfg.job.Rejoin)
		w.logf("%s reaches no worker store for %v", n.name, d)
		n.outboundBlocked, w.hadBlocked = true, true
		w.after(d, func() { n.outboundBlocked = n.blockedForGood && n.outboundBlocked })
	}
}

// closeJob closes the run, as SetClosed does.
func closeJob(w *world) {
	if n := w.victim(); n != nil {
		p := n.proc
		n.agent.do(false, func() {
			if !p.dead && p.m != nil {
				p.m.Close("")
				p.pump()
			}
		})
	}
}

// freezeNode pauses a machine.
func freezeNode(w *world) {
	if n := w.victim(); n != nil && !n.agent.frozen {
		d := w.outage()
		w.logf("%s is paused for %v", n.name, d)
		w.check.forgive(n, "frozen")
		n.thawed = w.now + d
		w.extendSessions(n, d)
		n.workers.freeze(d)
		if w.chance(0.5) {
			n.agent.freeze(d)
			n.guard.freeze(d)
		} else {
			n.guard.freeze(d)
			n.agent.freeze(d)
		}
		w.after(d+thawGrace, func() { w.check.thawed(n) })
	}
}

// freezeAgent pauses the node's agent.
func (w *world) freezeAgent(n *simNode) {
	if !n.agent.frozen {
		d := w.outage()
		w.logf("the agent of %s is paused for %v", n.name, d)
		w.check.forgive(n, "frozen")
		w.extendSessions(n, d)
		n.agent.freeze(d)
		n.unguarded()
		w.after(d-1, func() { n.unguarded() })
	}
}

// leading returns the node whose agent leads, or any victim if there is none.
func (w *world) leading() *simNode {
	for _, n := range w.nodes {
		if p := n.proc; p != nil && p.elector != nil && p.elector.term != nil {
			return n
		}
	}
	return w.victim()
}
