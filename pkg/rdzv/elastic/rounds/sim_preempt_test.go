package rounds

import (
	"math/rand/v2"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// simPreempt is when a run is preempted, and what its workers do then. It has a generator of its own, so that worlds
// without a preemption do not depend on it.
type simPreempt struct {
	rng   *rand.Rand
	at    time.Duration // below 0: never
	grace time.Duration
	// finishes is the probability that the workers of a node have done all their work.
	finishes float64
	ordered  int // how many groups of workers were ordered to save
}

func newSimPreempt(seed uint64) simPreempt {
	rng := rand.New(rand.NewPCG(seed, 21))
	p := simPreempt{rng: rng, at: -1, grace: time.Duration(rng.Int64N(int64(20 * time.Second)))}
	if rng.Float64() < 0.15 {
		p.at = time.Duration(rng.Int64N(int64(40 * time.Second)))
	}
	if rng.Float64() < 0.5 {
		p.finishes = 0.9
	}
	return p
}

// schedulePreemption lets one or two agents ask for a preemption.
func (w *world) schedulePreemption() {
	p := &w.preempt
	if p.at < 0 {
		return
	}
	for range 1 + p.rng.IntN(2) {
		at := p.at + time.Duration(p.rng.Int64N(int64(2*time.Second)))
		node := w.nodes[p.rng.IntN(len(w.nodes))]
		w.after(at, func() { w.askForPreemption(node) })
	}
}

func (w *world) askForPreemption(n *simNode) {
	proc := n.proc
	if proc == nil {
		return
	}
	n.agent.do(false, func() {
		if !proc.dead && proc.m != nil && proc.m.over == nil {
			w.logf("%s asks for a preemption", n.name)
			proc.m.Preempt(n.local(), rdzv.Preemption{By: n.name})
			proc.pump()
		}
	})
}

// save lets the workers save and exit by themselves, within killIn at the latest.
func (g *workerGroup) save(killIn time.Duration) {
	w, p := g.w, &g.w.preempt
	p.ordered++
	g.preempted = true
	g.rd.interrupted(g.w.now)
	if g.phase < alive || g.stopped {
		g.stop(killIn)
		return
	}
	g.stopped = true
	grace := min(p.grace, time.Duration(float64(killIn)/g.node.clock.rate))
	g.node.workers.timer(w.now+time.Duration(p.rng.Int64N(int64(grace)+1)*6/5), func() {
		g.finished = g.phase == alive && p.rng.Float64() < p.finishes
		g.finish(false)
	})
	until := w.now + time.Duration(float64(killIn)/g.node.clock.rate)
	g.proc.loopTimer(w.now+grace, func() { // the grace is over
		if g.phase == alive && !g.orphan {
			g.stop(max(0, until-w.now))
		}
	})
}

// preempted checks a run that a preemption has ended.
func (c *checker) preempted(o rdzv.Outcome) {
	rd := c.current
	switch {
	case !c.preemption:
		c.fail("preemption", "the run ended by one that is not recorded")
	case rd == nil || c.broken != nil:
	default:
		c.checkOrdered(rd)
	}
	_ = o
}

// checkOrdered checks, in runs without faults, that every worker that was running had the order to save.
func (c *checker) checkOrdered(rd *simRound) {
	if c.w.cfg.gap > 0 || c.terms > 1 || rd.caused {
		return
	}
	for rank, g := range rd.groups {
		if g == nil || g.phase == gone && g.goneAt < c.preemptedAt {
			continue
		}
		if !g.preempted && !rd.exited[rank] {
			c.fail("preemption", "the workers of %s were not to save in round %d", g.node.name, g.round)
		}
	}
}

// allFinished reports whether each worker of a round has exited with 0 or has done all its work.
func (rd *simRound) allFinished() bool {
	for rank := range rd.record.Members {
		if g := rd.groups[rank]; !rd.exited[rank] && (g == nil || !g.finished) {
			return false
		}
	}
	return true
}
