package rounds

import (
	"fmt"
	"strings"
	"time"
)

// simulate simulates the seed to the end of the job.
func (w *world) simulate() {
	c := &w.cfg
	if !c.etcd && !c.group {
		w.store.lead()
	}
	for _, n := range w.nodes {
		n.restartAfter(w.between(0, c.joins))
	}
	if c.gap > 0 {
		w.nextFault()
	}
	w.schedulePreemption()
	w.run(c.faults, w.allEnded)
	w.calmDown()
	w.run(c.faults+c.recoveryBound(), w.allEnded)
	if w.check.broken == nil && !w.allEnded() {
		w.check.fail("liveness", "%v after the last fault the job has not ended: %s", c.recoveryBound(), w.status())
	}
	w.ended = w.now
	w.checkLeftovers()
}

// checkLeftovers checks what is left in the store once every agent has ended.
func (w *world) checkLeftovers() {
	if w.check.broken != nil || w.cfg.group {
		return
	}
	w.run(max(w.now, w.store.actor.until)+2*w.cfg.ttl, func() bool { return false })
	for _, ses := range w.store.sorted() {
		w.check.checkCounts(ses.id)
	}
	if l := w.store.term; l != nil && w.check.outcome != nil && !l.l.Acknowledged() {
		w.check.fail("liveness", "the leader does not know that everybody has gone: %v", l.l.Sessions())
	}
	if left := w.store.list(KeyWaiting); w.store.term != nil && len(left) > 0 {
		w.check.fail("tidy", "the count of waiting nodes is left: %v", left[0].value)
	}
	if left := w.store.list(PrefixDeparted); w.store.term != nil && len(left) > 0 {
		w.check.fail("tidy", "%d departures are left, the first is %s", len(left), left[0].key)
	}
	if left := w.store.list(PrefixAnswer); w.store.term != nil && len(left) > 0 && w.store.restarts == 0 {
		w.check.fail("tidy", "%d answers are left, the first is %s", len(left), left[0].key)
	}
}

// nextFault schedules the next fault.
func (w *world) nextFault() {
	w.after(w.between(0, 2*w.cfg.gap), func() {
		if !w.calm {
			w.check.faults++
			w.cfg.kinds[w.rng.IntN(len(w.cfg.kinds))].do(w)
			w.nextFault()
		}
	})
}

// calmDown ends all faults.
func (w *world) calmDown() {
	w.logf("--- calm")
	w.calm = true
	if rd := w.check.current; rd != nil && rd.started {
		for _, g := range rd.groups {
			g.node.workers.timer(w.now+w.cfg.calmLength+w.between(0, 300*time.Millisecond)+w.barrier.straggler(), g.succeed)
		}
	}
	for _, n := range w.nodes {
		w.heal(n, up)
		w.heal(n, down)
		n.refusing = 0
		if !n.blockedForGood {
			n.inboundBlocked, n.outboundBlocked = false, false
		}
		if n.proc == nil {
			n.restartAfter(w.between(0, w.cfg.restartDelay))
		}
	}
}

// allEnded reports whether no node will have an agent any more.
func (w *world) allEnded() bool {
	for _, n := range w.nodes {
		if !n.gone {
			return false
		}
	}
	return true
}

// status says what each node is waiting for.
func (w *world) status() string {
	var b strings.Builder
	for _, n := range w.nodes {
		switch p := n.proc; {
		case n.gone:
			fmt.Fprintf(&b, " %s gone;", n.name)
		case p == nil || p.m == nil:
			fmt.Fprintf(&b, " %s not there;", n.name)
		default:
			fmt.Fprintf(&b, " %s %s state %d round %d answer %s %v workers %v;", n.name, p.session, p.m.state,
				p.m.Round(), p.m.latest.Kind, p.m.latest.Fence, p.group != nil)
		}
	}
	return b.String()
}
