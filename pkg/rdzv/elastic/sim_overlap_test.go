package elastic

import "time"

// overlap checks that workers of one round only are running.
func (c *checker) overlap(g *group) {
	for _, n := range c.w.nodes {
		for _, x := range n.leftover {
			if x == g || x.rd == g.rd || x.phase != alive || n.workers.frozen {
				continue
			}
			switch {
			case c.w.now < n.unguarded() || c.w.now < g.node.unguarded():
				c.rogue++
			case !later(x.rd, g.rd).guarded:
				c.unknown++
			case c.w.now < n.thawed+thawGrace || c.w.now < g.node.thawed+thawGrace:
				c.thaws++ // it was frozen for longer than its session lived, and is about to be killed
			default:
				c.fail("no overlap", "workers of round %d/%d run on %s while those of round %d/%d run on %s", x.rd.instance, x.round, n.name,
					g.rd.instance, g.round, g.node.name)
			}
		}
	}
}

// thawGrace is how long workers may go on after their whole machine stood still: nobody can stop them before it runs again.
const thawGrace = 50 * time.Millisecond

func (c *checker) thawed(n *simNode) {
	for _, g := range n.leftover {
		if g.phase == alive {
			c.overlap(g)
		}
	}
}
