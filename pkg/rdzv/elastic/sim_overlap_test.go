package elastic

import "time"

// simRoundID tells rounds of different stores apart, which count alike.
type simRoundID struct{ instance, round int }

// replaced takes note that there is another store.
func (c *checker) storeReplaced() {
	if c.outcome != nil {
		c.past = append(c.past, *c.outcome)
	}
	c.outcome, c.current, c.charges, c.last = nil, nil, nil, -1
	c.earlier, c.waited = false, false
}

// foresee says whether a round may meet workers of an earlier store. Where nothing is known of one, all nodes that come
// at once may begin.
func (c *checker) notePredecessor(rd *simRound) {
	s, job := c.w.store, &c.w.cfg.job
	rd.instance = s.instance
	if n := len(rd.record.Members); rd.record.Round == 0 {
		c.waited = s.instance == 0 || s.fresh.predecessorEnd.set || n < job.Max && (job.Expected == 0 || n < job.Expected)
	}
	rd.guarded = c.waited || c.earlier
}

// later is the one of two rounds that was decided by the later store.
func later(a, b *simRound) *simRound {
	if a.instance > b.instance {
		return a
	}
	return b
}

// overlap checks that workers of one round only are running.
func (c *checker) overlap(g *group) {
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
			case c.w.now < n.thawed+thawGrace || c.w.now < g.node.thawed+thawGrace:
				c.thawOverlaps++ // it was frozen for longer than its session lived, and is about to be killed
			default:
				c.fail("no overlap", "workers of round %d/%d run on %s while those of round %d/%d run on %s", x.rd.instance, x.round, n.name,
					g.rd.instance, g.round, g.node.name)
			}
		}
	}
}

// thawGrace is how long workers may go on after their whole machine stood still: nobody can stop them before it runs
// again.
const thawGrace = 50 * time.Millisecond

func (c *checker) thawed(n *simNode) {
	for _, g := range n.liveGroups {
		if g.phase == alive {
			c.overlap(g)
		}
	}
}
