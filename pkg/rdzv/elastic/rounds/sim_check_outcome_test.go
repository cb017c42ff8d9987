package rounds

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// result checks the outcome of the job.
func (c *checker) result(o rdzv.Outcome) {
	if c.outcome != nil {
		c.fail("one outcome", "%v after %v", o, *c.outcome)
		return
	}
	c.outcome = &o
	c.checkUsed(o.Used)
	c.checkOneAtATime(o)
	rd, job := c.current, &c.w.cfg.job
	switch o.Ending {
	case rdzv.EndSucceeded:
		finished := rd != nil && (len(rd.exited) == len(rd.record.Members) || c.preemption && rd.allFinished())
		if !finished {
			c.fail("success", "not every worker of round %d has exited with 0", c.last)
		}
		c.checkLeftOut(rd)
	case rdzv.EndFailed:
		if c.departureEnded(o.Text) {
			return
		}
		c.checkCharged(rd)
		recent := 1
		for _, at := range c.charges {
			if job.RestartWindow == 0 || c.w.now-at < job.RestartWindow*105/100+10*time.Second*time.Duration(c.terms) {
				recent++
			}
		}
		if recent <= job.MaxRestarts {
			c.fail("budget", "failed after %d failures that count, %d restarts were allowed", recent, job.MaxRestarts)
		}
		if o.Cause == nil {
			c.fail("cause", "no cause")
			return
		}
		if len(rd.own) == 0 { // the agent of the failed worker hung, and another node reported the consequence
			return
		}
		for rank, f := range rd.own {
			if f.Host == o.Cause.Host && o.Cause.GlobalRank == rank && o.Cause.Grade == 1 {
				return
			}
		}
		c.fail("cause", "%+v was not what failed by itself in round %d", *o.Cause, c.last)
	case rdzv.EndTimeout:
		c.checkSuccessStands("the run is given up")
		c.checkGivenUp()
	case rdzv.EndNodeLost:
		if !c.departureEnded(o.Text) {
			c.fail("departure", "a lost node has ended the run, and none had departed: %s", o.Text)
		}
	case rdzv.EndPreempted:
		c.preempted(o)
	case rdzv.EndClosed:
	}
}

// checkGivenUp checks that a job that was given up could not have run.
func (c *checker) checkGivenUp() {
	cfg := &c.w.cfg
	if len(c.w.groups) > 1 { // the nodes may be in another group
		return
	}
	if c.w.now < cfg.faults+2*cfg.restartDelay+5*cfg.ttl+10*time.Second || cfg.job.Static {
		return
	}
	here := map[string]bool{}
	for _, n := range c.w.nodes {
		if !n.gone && !n.blockedForGood && n.job == cfg.job && !n.hung() {
			here[n.node.Identity] = true
		}
	}
	// If healthy nodes could not reach each other for a while either, it is not always clear which node is at fault.
	if ambiguous := c.w.hadBlocked && strings.HasPrefix(c.outcome.Text, "no node is left"); len(here) >= cfg.job.Min &&
		!ambiguous {
		c.fail("liveness", "the job was given up although there are %d healthy nodes: %s", len(here), c.outcome.Text)
	}
}

// checkLeftOut checks that the last round has every node that could be in it: newcomers that came in time have ended
// the round before.
func (c *checker) checkLeftOut(rd *simRound) {
	job := &c.w.cfg.job
	if c.broken != nil || job.Multiple > 1 || job.Grow != GrowNow || job.Static || job.MaxNodeLosses > 0 ||
		len(rd.record.Members) >= job.Max || len(rd.record.Faults) > 0 {
		return
	}
	member := map[coord.SessionID]bool{}
	for _, m := range rd.record.Members {
		member[m.ID] = true
	}
	in := max(rd.decided, c.lastTerm)
	for _, ses := range c.w.store.sorted() {
		n := c.counts[ses.id]
		if n == nil || n.ready == 0 || member[ses.id] || c.owner[ses.id].proc == nil ||
			c.owner[ses.id].proc.session != ses.id {
			continue
		}
		if rd.firstExit > max(in, n.ready)+job.JoinSettle+2*time.Second && rd.forgiven == "" {
			c.fail("liveness", "%s of %s has waited since %v; round %d, decided at %v, had room without it", ses.id,
				ses.node.name, n.ready,
				rd.record.Round, rd.decided)
		}
	}
}

// rerunBegun checks the start of a new run after a finished one.
func (c *checker) rerunBegun() {
	if c.outcome == nil {
		return
	}
	c.w.logf("a rerun begins after %+v", *c.outcome)
	for _, ses := range c.w.store.sorted() {
		if p := c.owner[ses.id]; p != nil && p.proc != nil && p.proc.session == ses.id && p.proc.group != nil {
			c.fail("no overlap", "a rerun begins while workers of the run may run on %s", p.name)
		}
	}
	c.past, c.outcome, c.current, c.charges, c.departed = append(c.past, *c.outcome), nil, nil, nil, nil
}

// outcomeSeen checks the outcome that an agent has received.
func (c *checker) outcomeSeen(p *agentProc, o *rdzv.Outcome) {
	if run := c.runs[p.instance]; run != nil && p.instance != c.w.store.instance {
		defer func(of *simRun) { c.simRun = of }(c.simRun)
		c.simRun = run
	}
	if slices.ContainsFunc(c.past, func(of rdzv.Outcome) bool { return reflect.DeepEqual(*o, of) }) {
		return
	}
	if c.outcome == nil || !reflect.DeepEqual(*o, *c.outcome) {
		c.fail("one outcome", "%s received %+v, the outcome is %+v", p.node.name, o, c.outcome)
	}
}

// gaveUp checks the error with which an agent ends. No agent may give up waiting while there are enough nodes for a
// round.
func (c *checker) gaveUp(p *agentProc, err error) {
	if !errors.Is(err, rdzv.ErrTimeout) || !c.w.calm {
		return
	}
	here := map[string]bool{}
	for _, n := range c.w.nodes {
		if !n.gone && !n.hung() {
			here[n.node.Identity] = true
		}
	}
	if len(here) >= c.w.cfg.job.Min && c.w.now > c.w.cfg.faults+c.w.cfg.job.JoinTimeout {
		c.fail("liveness", "%s gave up waiting, although there are enough nodes: %v", p.node.name, err)
	}
	p.node.gone = true // nobody starts it again
}
