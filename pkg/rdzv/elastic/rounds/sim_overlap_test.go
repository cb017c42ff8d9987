package rounds

import "time"

// simRoundID identifies a round. Rounds of different stores have the same numbers.
type simRoundID struct{ instance, round int }

// storeReplaced records that another store has replaced the last one.
func (c *checker) storeReplaced() {
	if c.outcome != nil {
		c.past = append(c.past, *c.outcome)
	}
	c.outcome, c.current, c.charges, c.departed, c.last = nil, nil, nil, nil, -1
	c.earlier, c.waited = false, false
}

// notePredecessor records whether workers of an earlier store may run beside the round. If nothing is known of an
// earlier store, a complete set of nodes may start at once.
func (c *checker) notePredecessor(rd *simRound) {
	s, job := c.w.store, &c.w.cfg.job
	rd.instance = s.instance
	if n := len(rd.record.Members); rd.record.Round == 0 {
		c.waited = s.instance == 0 || s.fresh.predecessorEnd.Set || n < job.Max &&
			(job.Expected == 0 || n < job.Expected)
	}
	rd.guarded = c.waited || c.earlier
	if c.w.cfg.group {
		rd.guarded = !c.w.groups[s.instance].blind
	}
}

// later returns the round of the later store.
func later(a, b *simRound) *simRound {
	if a.instance > b.instance {
		return a
	}
	return b
}

// overlap checks that only the workers of one round run.
func (c *checker) overlap(g *workerGroup) {
	for _, n := range c.w.nodes {
		for _, x := range n.liveGroups {
			if x == g || x.rd == g.rd || x.phase != alive || n.workers.frozen {
				continue
			}
			switch {
			case c.w.now < n.unguarded() || c.w.now < g.node.unguarded():
				c.unguardedOverlaps++
			case !later(x.rd, g.rd).guarded:
				c.unknownOverlaps++
			case c.w.now < x.thawsUntil() || c.w.now < g.thawsUntil():
				// The machine was paused for longer than a session lives. Its guard or the kernel is about to kill the workers.
				c.thawOverlaps++
			default:
				c.fail("no overlap", "workers of round %d/%d run on %s while those of round %d/%d run on %s",
					x.rd.instance, x.round, n.name,
					g.rd.instance, g.round, g.node.name)
			}
		}
	}
}

// thawGrace is how long workers may run after their whole machine was paused: nobody can stop them before it resumes.
const thawGrace = 50 * time.Millisecond

// thawsUntil returns until when workers may run because their whole machine was paused. If their agent was killed
// meanwhile, the kernel ends them, which may take it longer than it takes the guard.
func (g *workerGroup) thawsUntil() time.Duration {
	if g.orphanedInPause {
		return g.node.thawed + max(thawGrace, g.w.cfg.slowSweep())
	}
	return g.node.thawed + thawGrace
}

// thawed checks for overlaps after a pause of a machine.
func (c *checker) thawed(n *simNode) {
	for _, g := range n.liveGroups {
		if g.phase == alive {
			c.overlap(g)
		}
	}
}
