package rounds

import (
	"reflect"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// record checks a decided round against the last one.
func (c *checker) record(r Record, epoch coord.Revision) {
	if r.Round <= c.last {
		c.fail("one membership a round", "round %d is decided after round %d", r.Round, c.last)
		return
	}
	c.oneOfEach(r)
	if c.preemption {
		c.fail("preemption", "round %d is decided although the run is preempted", r.Round)
	}
	c.checkSuccessStands("another round is decided")
	if left := c.w.store.list(PrefixRound); len(left) > 2 { // the last one, and the one before until it is deleted
		c.fail("tidy", "%d records are in the store", len(left))
	}
	before := c.current
	c.newcomers(before, r, epoch)
	if before != nil {
		if len(before.ended) < len(before.record.Members) { // otherwise there is no order to keep
			c.keepOrder(before.record, r)
		}
		c.charge(before, r.Restarts-before.record.Restarts)
	}
	c.last = r.Round
	c.rounds++
	c.places += len(r.Members)
	for _, n := range c.counts {
		n.rounds++
	}
	rd := c.w.plan(r, epoch)
	c.used = append(c.used, rd)
	c.notePredecessor(rd)
	c.current, c.w.rounds[simRoundID{rd.instance, r.Round}] = rd, rd
	for _, m := range r.Members {
		n := c.owner[m.ID]
		if c.w.store.sessions[m.ID] == nil {
			rd.ended[m.ID], rd.forgiven = true, "a member's session had ended before"
		}
		if p := n.proc; p == nil || p.session != m.ID || p.leaving || p.conn == nil || n.cut[up] || n.cut[down] ||
			n.agent.frozen || n.workers.frozen || n.hung() || c.w.now < n.refusing {
			rd.forgiven = "a member was in trouble before"
		}
	}
}

// oneOfEach checks that the ranks are dense and unique.
func (c *checker) oneOfEach(r Record) {
	cfg := &c.w.cfg
	if n := len(r.Members); n < cfg.job.Min || n > cfg.job.Max || n%max(1, cfg.job.Multiple) != 0 {
		c.fail("ranks dense and unique", "round %d has %d members", r.Round, n)
	}
	seen := map[string]bool{}
	for rank, m := range r.Members {
		n := c.owner[m.ID]
		if n == nil || seen[string(m.ID)] || seen["i"+m.Identity] {
			c.fail("ranks dense and unique", "round %d: rank %d is duplicate or unknown", r.Round, rank)
			return
		}
		seen[string(m.ID)], seen["i"+m.Identity] = true, true
		if n.node.Identity != m.Identity || n.node.Nproc != m.Nproc || n.node.Role != m.Role {
			c.fail("ranks dense and unique", "round %d: rank %d does not match node %s", r.Round, rank, n.name)
		}
		if cfg.job.Static && n.node.Hint != rank {
			c.fail("ranks dense and unique", "round %d: rank %d went to %s with hint %d", r.Round, rank, n.name,
				n.node.Hint)
		}
	}
}

// keepOrder checks that nodes of the last round keep their order, even if their agents were restarted.
func (c *checker) keepOrder(before, r Record) {
	at := map[string]int{}
	for rank, m := range before.Members {
		at[m.Identity] = rank + 1
		if r.Faults[m.Identity].Unreachable != nil {
			at[m.Identity] = 0 // it may have had to give up rank 0
		}
	}
	last := 0
	for _, m := range r.Members {
		rank := at[m.Identity]
		if rank != 0 && rank < last {
			c.fail("ranks dense and unique", "round %d does not keep the order of round %d", r.Round, before.Round)
		}
		last = max(last, rank)
	}
}

// charge checks whether the end of a round was charged correctly.
func (c *checker) charge(rd *simRound, cost int) {
	n, job := rd.record.Round, &c.w.cfg.job
	switch {
	case cost < 0 || cost == 0 && len(rd.ended) == len(rd.record.Members):
		if len(rd.ended) < len(rd.record.Members) {
			c.fail("budget", "the budget of round %d was forgotten while its nodes lived", n)
		}
		if cost < 0 {
			c.charges = nil
		}
	case cost > 1:
		c.fail("budget", "round %d was charged %d times", n, cost)
	case cost == 1:
		c.checkCharged(rd)
		c.charges = append(c.charges, c.w.now)
		recent := 0
		for _, at := range c.charges {
			if job.RestartWindow == 0 || c.w.now-at < job.RestartWindow*95/100 {
				recent++
			}
		}
		if recent > job.MaxRestarts {
			c.fail("budget", "%d restarts were charged, %d allowed", recent, job.MaxRestarts)
		}
	case len(rd.own) > 0 && rd.forgiven == "" && !rd.grown && c.w.cfg.stuck == 0 &&
		!c.onlyNewcomers(rd, newcomerPeriod*103/100):
		c.fail("budget", "round %d was free, although %v failed by itself and nothing else happened", n, rd.own)
	}
}

// onlyNewcomers reports whether every worker that failed by itself was on a new node, and failed at most within after
// the decision.
func (c *checker) onlyNewcomers(rd *simRound, within time.Duration) bool {
	for rank := range rd.own {
		if !rd.record.Members[rank].New || rd.ownAt[rank] > rd.decided+within {
			return false
		}
	}
	return len(rd.own) > 0
}

// newcomers checks which members count as new.
func (c *checker) newcomers(before *simRound, r Record, epoch coord.Revision) {
	known := map[string]bool{}
	if before != nil && len(before.ended) < len(before.record.Members) {
		for _, m := range before.record.Members {
			known[m.Identity] = !m.New || before.epoch == epoch &&
				c.w.now-before.decided > newcomerPeriod*103/100+2*c.w.cfg.job.Rejoin
		}
	}
	old := 0
	for _, m := range r.Members {
		if !m.New {
			old++
		} else if known[m.Identity] {
			c.fail("newcomers", "round %d: %s counts as new", r.Round, m.Identity)
		}
	}
	if old == 0 {
		c.fail("newcomers", "round %d: every member counts as new", r.Round)
	}
}

// checkCharged checks that a charged round could be charged.
func (c *checker) checkCharged(rd *simRound) {
	n := rd.record.Round
	for r, m := range rd.record.Members {
		if gone := rd.exited[r] && rd.ended[m.ID]; !rd.ready[m.ID] && !gone {
			c.fail(
				"charged justly",
				"round %d was charged although rank %d, %s on %s, had not reported the end of its workers",
				n,
				r,
				m.ID,
				c.owner[m.ID].name,
			)
		}
	}
	if !rd.caused {
		c.fail("charged justly", "round %d was charged although no worker had failed by itself", n)
	}
	if rd.forgiven == "" && c.w.cfg.stuck == 0 && c.onlyNewcomers(rd, newcomerPeriod*97/100) &&
		len(rd.record.Faults) == 0 {
		c.fail("charged justly", "round %d was charged although only newcomers had failed by themselves: %v", n, rd.own)
	}
}

// accepted checks a round that an agent is about to start.
func (c *checker) accepted(p *agentProc, a *Answer) {
	if !p.acted.before(a.Fence) {
		c.fail("fence", "%s starts %v after %v", p.node.name, a.Fence, p.acted)
	}
	if now := p.node.local(); p.m.IsSilent(now) {
		c.fail("liveness", "%s starts round %d, which it has to stop at once", p.node.name, a.Fence.Round)
	}
	id := simRoundID{p.instance, a.Fence.Round}
	rd := c.w.rounds[id]
	if rd == nil || a.Place == nil || a.Place.Rank >= len(rd.record.Members) {
		c.fail("one membership a round", "%s starts round %d, which nobody decided", p.node.name, a.Fence.Round)
		return
	}
	members := rd.record.Members
	if members[a.Place.Rank].ID != p.session {
		c.fail("one membership a round", "%s has rank %d of round %d, which is %s's", p.session, a.Place.Rank,
			a.Fence.Round, members[a.Place.Rank].ID)
	}
	want := Place{Rank: a.Place.Rank, Nodes: len(members), Restarts: rd.record.Restarts, Store: *members[0].Store}
	if c.w.cfg.group {
		want.StoreEndsWithRun, want.JoinStore = true, a.Place.JoinStore
	}
	as := &want.Assignment
	for r, m := range members {
		if r < a.Place.Rank {
			as.GlobalBase += m.Nproc
		}
		as.GlobalWorldSize += m.Nproc
		if m.Role == p.node.node.Role {
			as.RoleWorldSize += m.Nproc
			if r < a.Place.Rank {
				as.RoleBase += m.Nproc
			}
		}
	}
	want.Lost, want.Same, want.Used = rd.record.Lost, rd.record.Same, usedBefore(&rd.record)
	if !reflect.DeepEqual(want, *a.Place) {
		c.fail("ranks dense and unique", "%s got place %+v, want %+v", p.node.name, *a.Place, want)
	}
	nonce := a.Place.Store.Nonce
	if n, used := c.nonces[nonce]; used && n != id {
		c.fail("fresh store", "the store %s of round %v was used in round %v", nonce, id, n)
	}
	if a.Place.Rank == 0 && nonce != p.offer.Nonce {
		c.fail("fresh store", "the store %s of round %d is not the one that rank 0 has open, %s", nonce, a.Fence.Round,
			p.offer.Nonce)
	}
	if rd.accepted[p.session] {
		c.fail("fence", "%s starts round %d twice", p.node.name, a.Fence.Round)
	}
	rd.accepted[p.session] = true
}

// workersStart checks the start of workers.
func (c *checker) workersStart(g *workerGroup) {
	c.nonces[g.nonce] = simRoundID{g.rd.instance, g.round}
	if g.proc.stoppedRound == g.rd {
		c.fail("no start of a round that is over", "%s starts workers of round %d/%d, which it was ordered to stop",
			g.node.name, g.rd.instance, g.round)
	}
	c.overlap(g)
}

// latest checks that an agent never acts on an older decision.
func (c *checker) latest(p *agentProc, before Fence) {
	if p.m.latest.Fence.before(before) {
		c.fail("fence", "%s acts on %v after %v", p.node.name, p.m.latest.Fence, before)
	}
}
