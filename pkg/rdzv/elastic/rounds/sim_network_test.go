package rounds

import "time"

// cutOff cuts both directions of the node's link.
func (w *world) cutOff(n *simNode) {
	w.check.forgive(n, "cut")
	d := w.outage()
	w.cutLink(n, up, d)
	w.cutLink(n, down, d)
}

// halfCut cuts one direction of a node's link.
func halfCut(w *world) {
	if n := w.victim(); n != nil {
		w.check.forgive(n, "cut")
		w.cutLink(n, w.rng.IntN(2), w.outage())
	}
}

// flap breaks a connection and cuts the link for less than a second, so that the session can be resumed.
func flap(w *world) {
	if n := w.victim(); n != nil {
		w.breakConn(n)
		d := w.between(100*time.Millisecond, 800*time.Millisecond)
		w.cutLink(n, up, d)
		w.cutLink(n, down, d)
	}
}

// reset breaks a connection. Both sides notice, at different times.
func reset(w *world) {
	if n := w.victim(); n != nil {
		w.breakConn(n)
	}
}

func (w *world) breakConn(n *simNode) {
	p := n.proc
	if p == nil || p.conn == nil {
		return
	}
	c := p.conn
	w.check.forgive(n, "reset")
	w.logf("%s connection reset", n.name)
	c.broken = true
	w.after(w.between(0, 150*time.Millisecond), func() { n.agent.do(false, func() { p.connectionBroken(c) }) })
	w.after(w.between(0, 150*time.Millisecond), func() { c.store.notice(c) })
}

// resetOneSide breaks a connection, which only one side notices.
func resetOneSide(w *world) {
	n := w.victim()
	if n == nil || n.proc.conn == nil {
		return
	}
	p, c := n.proc, n.proc.conn
	w.check.forgive(n, "reset")
	c.broken = true
	if w.chance(0.5) {
		w.logf("%s connection reset, which the store notices", n.name)
		c.store.notice(c)
		return
	}
	w.logf("%s connection reset, which the agent notices", n.name)
	n.agent.do(false, func() { p.connectionBroken(c) })
}

// proxyDies breaks the connections of one node or of all, and refuses new ones for a while.
func proxyDies(w *world) {
	n := w.victim()
	if n == nil {
		return
	}
	through := []*simNode{n}
	if w.chance(0.2) {
		through = w.nodes
	}
	d := w.outage()
	for _, n := range through {
		w.logf("%s cannot reach the store for %v", n.name, d)
		w.check.forgive(n, "proxy")
		n.refusing = max(n.refusing, w.now+d)
		w.breakConn(n)
	}
}

// notice lets the store notice that a connection is broken.
func (s *simStore) notice(c *simConn) {
	s.actor.do(false, func() {
		if s.up {
			s.connectionBroken(c)
		}
	})
}
