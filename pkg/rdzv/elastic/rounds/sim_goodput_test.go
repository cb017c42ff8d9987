package rounds

import (
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/goodput"
)

// simUse is what the simulator knows of how the workers of a round have used their time.
type simUse struct {
	began  time.Duration         // when all workers had started; 0 before
	broken time.Duration         // when the first of them failed or had to stop; 0 while that has not happened
	exited map[int]time.Duration // by rank: when they had exited with 0
}

// interrupted records that a worker of the round fails, or has to stop.
func (rd *simRound) interrupted(now time.Duration) {
	if rd.use.broken == 0 {
		rd.use.broken = now
	}
}

// running returns the worker-seconds in which all workers of the round ran.
func (rd *simRound) running(now time.Duration) (sum float64) {
	u := &rd.use
	if u.began == 0 {
		return 0
	}
	end := now
	if u.broken > 0 {
		end = u.broken
	}
	for rank, m := range rd.record.Members {
		until := end
		if at, ok := u.exited[rank]; ok {
			until = min(until, at)
		}
		sum += float64(m.Nproc) * max(0, until-u.began).Seconds()
	}
	return sum
}

// checkUsed checks how the workers of a run have used their time, according to the leader. Clocks are wrong by up to
// 1 %, and the leader learns of the death of a node only when its session ends.
func (c *checker) checkUsed(used *goodput.Goodput) {
	if used == nil {
		c.fail("goodput", "the outcome has none")
		return
	}
	switch {
	case c.term.l.before != nil, len(c.used) == 0, usedBefore(&c.used[0].record) != nil:
		// It includes the rounds of an earlier store.
		return
	case slices.Contains([]string{"hung agents", "store", "everything"}, c.w.cfg.profile):
		// While an agent hangs or the store is frozen, nobody knows what becomes of workers.
		return
	}
	truth, slack := 0.0, 0.0
	for i, rd := range c.used {
		running, workers := rd.running(c.w.now), 0
		for _, m := range rd.record.Members {
			workers += m.Nproc
		}
		truth += running
		late := time.Second
		if c.w.cfg.gap > 0 { // there are faults
			late += 2*c.w.cfg.ttl + c.w.cfg.grace
		}
		if until := c.w.now; rd.forgiven != "" { // perhaps nobody saw how its workers ended
			if i+1 < len(c.used) {
				until = c.used[i+1].decided
			}
			late += until - max(rd.decided, rd.use.broken)
		}
		slack += 0.03*running + float64(workers)*late.Seconds()
	}
	for _, p := range used.Parts() {
		if p.Seconds < 0 {
			c.fail("goodput", "%s is %v", p.Name, p.Seconds)
		}
	}
	c.usedError = max(c.usedError, (used.Running-truth)/max(1, slack), (truth-used.Running)/max(1, slack))
	if diff := used.Running - truth; diff > slack || diff < -slack {
		c.fail("goodput", "running %.1f worker-seconds, of which %.1f are true in %d rounds: %+v", used.Running, truth, len(c.used), *used)
	}
}
