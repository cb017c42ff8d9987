package rounds

import "github.com/elasticrun/elasticrun/pkg/rdzv"

// simGroupCounts adds up what happened with groups.
type simGroupCounts struct {
	servers, anew, yields, lonely int // lonely: rounds decided while a group that had grown before had one voter
	takeovers                     int
	unacknowledged                int // writes that the group has applied, but whose server could not acknowledge them
}

func (s *simGroupCounts) add(c simGroupCounts) {
	s.servers, s.anew, s.yields, s.lonely = s.servers+c.servers, s.anew+c.anew, s.yields+c.yields, s.lonely+c.lonely
	s.unacknowledged, s.takeovers = s.unacknowledged+c.unacknowledged, s.takeovers+c.takeovers
}

// oneAtATime reports whether the nodes fail one at a time, the others are enough for a round, and the job has neither
// ended nor have nodes departed. Agents that come later may begin it again.
func (c *checker) oneAtATime() bool {
	for _, run := range c.runs {
		if run != c.simRun && (run.outcome != nil || len(run.departed) > 0) {
			return false
		}
	}
	return c.w.cfg.profile == "one at a time" && c.w.cfg.job.Min < c.w.cfg.nodes && len(c.departed) == 0
}

// notFound checks an agent that has not found the store. While nodes fail one at a time, it must find the store if an
// agent is at the endpoint.
func (c *checker) notFound(p *agentProc) {
	if c.oneAtATime() && c.outcome == nil && !p.node.gone && c.w.nodes[0].proc != nil {
		c.fail("one at a time", "%s does not find the store", p.node.name)
	}
}

// checkOneAtATime checks that a job whose nodes fail one at a time does not end by itself.
func (c *checker) checkOneAtATime(o rdzv.Outcome) {
	if c.oneAtATime() && (o.Ending == rdzv.EndTimeout || o.Ending == rdzv.EndFailed) {
		c.fail("one at a time", "the job has ended by itself: %+v", o)
	}
}

// groupRecord checks the group of a decided round.
func (c *checker) groupRecord(s *simStore, r Record) {
	if s.part == nil {
		return
	}
	if s.instance > 0 && c.oneAtATime() {
		c.fail("one at a time", "round %d of group %d is decided", r.Round, s.instance)
	}
	if voters := len(s.part.Status.Voters); voters == 1 && s.part.id > 1 {
		c.groups.lonely++
	}
}
