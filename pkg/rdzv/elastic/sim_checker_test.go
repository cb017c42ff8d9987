package elastic

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// checker knows what must hold, and what has happened.
type checker struct {
	w        *world
	broken   *violation
	current  *simRound
	last     int // the highest round decided
	nonces   map[string]simRoundID
	owner    map[coord.SessionID]*simNode
	outcome  *rdzv.Outcome
	past     []rdzv.Outcome // of runs that were begun anew
	charges  []time.Duration
	counts   map[coord.SessionID]*simCounts
	terms    int
	lastTerm time.Duration
	term     *term // the last one
	earlier  bool  // the leader was told of an earlier store
	waited   bool  // this store's first round had to wait until no worker of an earlier one could be left
	rounds   int
	unknown  int // overlaps with the workers of an earlier store that nobody knew of
	rogue    int // overlaps while guard and agent stood still, which nobody can prevent
	thaws    int
	faults   int
	stuck    int // reports of an agent that does not respond
	decides  int
	places   int // of all rounds
	reports  int
	answers  int
	notes    int
}

// simCounts are messages of one session.
type simCounts struct {
	reports, answers, rounds, terms int
	notes                           int           // of its waits
	began                           time.Duration // the session
	ready                           time.Duration // since when it has been in line; 0 while it is not
}

// violation is a broken invariant.
type violation struct{ invariant, text string }

func newChecker(w *world) *checker {
	return &checker{w: w, last: -1, nonces: map[string]simRoundID{}, owner: map[coord.SessionID]*simNode{}, counts: map[coord.SessionID]*simCounts{}}
}

func (c *checker) fail(invariant, format string, args ...any) {
	if c.broken == nil {
		c.broken = &violation{invariant, fmt.Sprintf(format, args...)}
		c.w.logf("VIOLATION of %s: %s", invariant, c.broken.text)
	}
}

// trouble notes that something happened to a node, nil for all, for which a failure may be forgiven.
func (c *checker) trouble(n *simNode, why string) {
	rd := c.current
	if rd == nil || rd.trouble != "" {
		return
	}
	for _, m := range rd.record.Members {
		if n == nil || c.owner[m.ID] == n {
			rd.trouble = why
			return
		}
	}
}

func (c *checker) newLeader() {
	c.terms++
	c.lastTerm = c.w.now
	for _, n := range c.counts {
		n.terms++
	}
	if c.terms > 1 {
		c.trouble(nil, "new leader")
	}
}

func (c *checker) sessionBegan(ses *simSession, p *agentProc) {
	c.owner[ses.id] = p.node
	c.counts[ses.id] = &simCounts{began: c.w.now}
}

func (c *checker) sessionEnded(ses *simSession) {
	if c.current != nil {
		for _, m := range c.current.record.Members {
			if m.ID == ses.id {
				c.current.ended[ses.id] = true
				c.trouble(nil, "a session ended")
			}
		}
	}
	c.checkCounts(ses.id)
}

// slow takes note that an agent takes its time to enter.
func (c *checker) slow(p *agentProc) {
	c.trouble(p.node, "slow to enter")
	if n := c.counts[p.session]; n != nil {
		n.ready = 0
	}
}

func (c *checker) died(p *agentProc) { c.trouble(p.node, "agent ended") }

// committing checks a commit that the store is about to do.
func (c *checker) committing(by coord.Revision, ops []simOp) {
	if by == 0 {
		return
	}
	k := c.w.store.keys[keyLeader]
	if k == nil || k.create != by {
		c.fail("no stale write", "epoch %d writes %s, but the leader's key is gone or another's", by, ops[0].key)
	}
}

// committed looks at what was written.
func (c *checker) committed(ses *simSession, by coord.Revision, ops []simOp) {
	for _, op := range ops {
		if op.del && op.key == keyResult {
			c.begunAnew()
		}
		if op.del {
			continue
		}
		switch v := op.value.(type) {
		case Record:
			c.w.logf("round %d decided by epoch %d: %d members, restarts %d: %v", v.Round, by, len(v.Members), v.Restarts, ids(v.Members))
			c.record(v, by)
		case rdzv.Outcome:
			c.w.logf("outcome: %s after %d restarts, cause known: %v, %s", v.Ending, v.Restarts, v.Cause != nil, v.Text)
			c.result(v)
		case Answer:
			id := coord.SessionID(strings.TrimPrefix(op.key, prefixAnswer))
			c.w.logf("answer to %s: %s %d/%d %s", id, v.Kind, v.Fence.Epoch, v.Fence.Round, v.Note)
			switch n := c.counts[id]; {
			case n == nil:
			case v.Kind == Wait && v.Next > 0:
				n.notes++
				c.notes++
			default:
				n.answers++
				c.answers++
			}
			if rd := c.w.rounds[simRoundID{c.w.store.instance, v.Fence.Round}]; v.Kind == Halt && rd != nil && v.Grow {
				rd.grown = true
			}
		case Report:
			n := c.counts[ses.id]
			n.reports++
			c.reports++
			if v.Phase != Ready || v.Leaving {
				n.ready = 0
			} else if n.ready == 0 {
				n.ready = c.w.now
			}
			if rd := c.current; rd != nil && v.Phase == Ready && v.Fence.Epoch != 0 && v.Fence.Round == rd.record.Round && !v.Silent && !v.Leaving {
				rd.ready[ses.id] = true
			}
			if v.Stuck {
				c.stuck++
			}
			if v.Silent || v.Leaving {
				c.trouble(c.owner[ses.id], "silent or leaving")
			}
		}
	}
}

func ids(members []RecordMember) []coord.SessionID {
	out := make([]coord.SessionID, len(members))
	for i, m := range members {
		out[i] = m.ID
	}
	return out
}

// record checks a decided round against the one before.
func (c *checker) record(r Record, epoch coord.Revision) {
	if r.Round <= c.last {
		c.fail("one membership a round", "round %d is decided after round %d", r.Round, c.last)
		return
	}
	c.oneOfEach(r)
	if left := c.w.store.list(prefixRound); len(left) > 2 { // the latest, and the one before until it is deleted
		c.fail("tidy", "%d records are in the store", len(left))
	}
	before := c.current
	c.newcomers(before, r, epoch)
	if before != nil {
		if len(before.ended) < len(before.record.Members) { // else it begins anew
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
	c.foresee(rd)
	c.current, c.w.rounds[simRoundID{rd.instance, r.Round}] = rd, rd
	for _, m := range r.Members {
		n := c.owner[m.ID]
		if c.w.store.sessions[m.ID] == nil {
			rd.ended[m.ID], rd.trouble = true, "a member's session had ended before"
		}
		if p := n.proc; p == nil || p.session != m.ID || p.leaving || p.conn == nil || n.cut[up] || n.cut[down] || n.agent.frozen || n.workers.frozen || n.hung() || c.w.now < n.refusing {
			rd.trouble = "a member was in trouble before"
		}
	}
}

// oneOfEach checks that the ranks are dense and unique.
func (c *checker) oneOfEach(r Record) {
	cfg := &c.w.cfg
	if n := len(r.Members); n < cfg.job.Min || n > cfg.job.Max {
		c.fail("ranks dense and unique", "round %d has %d members", r.Round, n)
	}
	seen := map[string]bool{}
	for rank, m := range r.Members {
		n := c.owner[m.ID]
		if n == nil || seen[string(m.ID)] || seen["i"+m.Identity] {
			c.fail("ranks dense and unique", "round %d: rank %d is twice or not there", r.Round, rank)
			return
		}
		seen[string(m.ID)], seen["i"+m.Identity] = true, true
		if n.node.Identity != m.Identity || n.node.Nproc != m.Nproc || n.node.Role != m.Role {
			c.fail("ranks dense and unique", "round %d: rank %d is not what %s is", r.Round, rank, n.name)
		}
		if cfg.job.Static && n.node.Hint != rank {
			c.fail("ranks dense and unique", "round %d: rank %d went to %s with hint %d", r.Round, rank, n.name, n.node.Hint)
		}
	}
}

// keepOrder checks that nodes which were in the round before keep their order, even if their agents were started anew.
func (c *checker) keepOrder(before, r Record) {
	at := map[string]int{}
	for rank, m := range before.Members {
		at[m.Identity] = rank + 1
		if r.Faults[m.Identity].Unreachable != nil {
			at[m.Identity] = 0 // it may have had to give rank 0 away
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

// charge checks what a round has cost.
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
		c.justly(rd)
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
	case len(rd.own) > 0 && rd.trouble == "" && !rd.grown && c.w.cfg.stuck == 0 && !c.onlyNewcomers(rd, newcomerPeriod*103/100):
		c.fail("budget", "round %d was free, although %v failed by itself and nothing else happened", n, rd.own)
	}
}

// onlyNewcomers reports whether all workers that failed by themselves were on new nodes, that long after the round was decided at most.
func (c *checker) onlyNewcomers(rd *simRound, within time.Duration) bool {
	for rank := range rd.own {
		if !rd.record.Members[rank].New || rd.ownAt[rank] > rd.decided+within {
			return false
		}
	}
	return len(rd.own) > 0
}

// newcomers checks which members are said to be new.
func (c *checker) newcomers(before *simRound, r Record, epoch coord.Revision) {
	known := map[string]bool{}
	if before != nil && len(before.ended) < len(before.record.Members) {
		for _, m := range before.record.Members {
			known[m.Identity] = !m.New || before.epoch == epoch && c.w.now-before.decided > newcomerPeriod*103/100+2*c.w.cfg.job.Rejoin
		}
	}
	old := 0
	for _, m := range r.Members {
		if !m.New {
			old++
		} else if known[m.Identity] {
			c.fail("newcomers", "round %d: %s is said to be new", r.Round, m.Identity)
		}
	}
	if old == 0 {
		c.fail("newcomers", "round %d: everybody is said to be new", r.Round)
	}
}

// justly checks that a round may be charged at all.
func (c *checker) justly(rd *simRound) {
	n := rd.record.Round
	for r, m := range rd.record.Members {
		if !rd.ready[m.ID] {
			c.fail("charged justly", "round %d was charged although rank %d, %s on %s, had not said that its workers have stopped", n, r, m.ID,
				c.owner[m.ID].name)
		}
	}
	if !rd.caused {
		c.fail("charged justly", "round %d was charged although no worker had failed by itself", n)
	}
	if rd.trouble == "" && c.w.cfg.stuck == 0 && c.onlyNewcomers(rd, newcomerPeriod*97/100) && len(rd.record.Faults) == 0 {
		c.fail("charged justly", "round %d was charged although only newcomers had failed by themselves: %v", n, rd.own)
	}
}

// result checks how the job ended.
func (c *checker) result(o rdzv.Outcome) {
	if c.outcome != nil {
		c.fail("one outcome", "%v after %v", o, *c.outcome)
		return
	}
	c.outcome = &o
	rd, job := c.current, &c.w.cfg.job
	switch o.Ending {
	case rdzv.EndSucceeded:
		if rd == nil || len(rd.exited) != len(rd.record.Members) {
			c.fail("success", "not every worker of round %d has exited with 0", c.last)
		}
		c.nobodyLeftOut(rd)
	case rdzv.EndFailed:
		c.justly(rd)
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
		if len(rd.own) == 0 { // its agent hung, and another node named what followed
			return
		}
		for rank, f := range rd.own {
			if f.Host == o.Cause.Host && o.Cause.GlobalRank == rank && o.Cause.Grade == 1 {
				return
			}
		}
		c.fail("cause", "%+v was not what failed by itself in round %d", *o.Cause, c.last)
	case rdzv.EndTimeout:
		c.justlyGivenUp()
	case rdzv.EndClosed:
	}
}

// justlyGivenUp checks that a job that is given up could not have run.
func (c *checker) justlyGivenUp() {
	cfg := &c.w.cfg
	if c.w.now < cfg.faults+2*cfg.comeBack+5*cfg.ttl+10*time.Second || cfg.job.Static {
		return
	}
	here := map[string]bool{}
	for _, n := range c.w.nodes {
		if !n.gone && !n.sick && n.job == cfg.job && !n.hung() {
			here[n.node.Identity] = true
		}
	}
	// Who is at fault cannot always be told where the way between healthy nodes fails for a while, too.
	if ambiguous := c.w.wavers && strings.HasPrefix(c.outcome.Text, "no node is left"); len(here) >= cfg.job.Min && !ambiguous {
		c.fail("liveness", "the job was given up although %d healthy nodes are there: %s", len(here), c.outcome.Text)
	}
}

// nobodyLeftOut checks that who could be in the last round was: newcomers that came in time have ended the round before.
func (c *checker) nobodyLeftOut(rd *simRound) {
	job := &c.w.cfg.job
	if c.broken != nil || job.Grow != GrowNow || job.Static || job.MaxNodeLosses > 0 || len(rd.record.Members) >= job.Max || len(rd.record.Faults) > 0 {
		return
	}
	member := map[coord.SessionID]bool{}
	for _, m := range rd.record.Members {
		member[m.ID] = true
	}
	in := max(rd.decided, c.lastTerm)
	for _, ses := range c.w.store.sorted() {
		n := c.counts[ses.id]
		if n == nil || n.ready == 0 || member[ses.id] || c.owner[ses.id].proc == nil || c.owner[ses.id].proc.session != ses.id {
			continue
		}
		if rd.firstExit > max(in, n.ready)+job.JoinSettle+2*time.Second && rd.trouble == "" {
			c.fail("liveness", "%s of %s was in line since %v and was left out of round %d, decided at %v, which had room", ses.id, ses.node.name, n.ready,
				rd.record.Round, rd.decided)
		}
	}
}

// accepted checks a round that an agent is about to start.
func (c *checker) accepted(p *agentProc, a *Answer) {
	if !p.acted.before(a.Fence) {
		c.fail("fence", "%s starts %v after %v", p.node.name, a.Fence, p.acted)
	}
	if now := p.node.local(); p.m.silent(now) {
		c.fail("liveness", "%s starts round %d, which it has to stop at once", p.node.name, a.Fence.Round)
	}
	id := simRoundID{p.instance, a.Fence.Round}
	rd := c.w.rounds[id]
	if rd == nil || a.Place == nil || a.Place.Rank >= len(rd.record.Members) {
		c.fail("one membership a round", "%s was told of round %d, which nobody decided", p.node.name, a.Fence.Round)
		return
	}
	members := rd.record.Members
	if members[a.Place.Rank].ID != p.session {
		c.fail("one membership a round", "%s has rank %d of round %d, which is %s's", p.session, a.Place.Rank, a.Fence.Round, members[a.Place.Rank].ID)
	}
	want := Place{Rank: a.Place.Rank, Nodes: len(members), Restarts: rd.record.Restarts, Store: *members[0].Store}
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
	if !reflect.DeepEqual(want, *a.Place) {
		c.fail("ranks dense and unique", "%s was told %+v, want %+v", p.node.name, *a.Place, want)
	}
	nonce := a.Place.Store.Nonce
	if n, used := c.nonces[nonce]; used && n != id {
		c.fail("fresh store", "the store %s of round %v was used in round %v", nonce, id, n)
	}
	if a.Place.Rank == 0 && nonce != p.offer.Nonce {
		c.fail("fresh store", "the store %s of round %d is not the one that rank 0 has open, %s", nonce, a.Fence.Round, p.offer.Nonce)
	}
	if rd.accepted[p.session] {
		c.fail("fence", "%s starts round %d twice", p.node.name, a.Fence.Round)
	}
	rd.accepted[p.session] = true
}

func (c *checker) workersStart(g *group) {
	c.nonces[g.nonce] = simRoundID{g.rd.instance, g.round}
	if g.proc.toldAt == g.rd {
		c.fail("no start of a round that is over", "%s starts workers of round %d/%d, which it was told to stop", g.node.name, g.rd.instance, g.round)
	}
	c.overlap(g)
}

// latest checks that what an agent acts on does not go back.
func (c *checker) latest(p *agentProc, before Fence) {
	if p.m.latest.Fence.before(before) {
		c.fail("fence", "%s acts on %v after %v", p.node.name, p.m.latest.Fence, before)
	}
}

// begunAnew takes note that a finished run is begun anew.
func (c *checker) begunAnew() {
	if c.outcome == nil {
		return
	}
	c.w.logf("the run is begun anew after %+v", *c.outcome)
	for _, ses := range c.w.store.sorted() {
		if p := c.owner[ses.id]; p != nil && p.proc != nil && p.proc.session == ses.id && p.proc.job != nil {
			c.fail("no overlap", "the run is begun anew while workers of it may run on %s", p.name)
		}
	}
	c.past, c.outcome, c.current, c.charges = append(c.past, *c.outcome), nil, nil, nil
}

// learned checks the outcome that an agent was told.
func (c *checker) learned(p *agentProc, o *rdzv.Outcome) {
	if slices.ContainsFunc(c.past, func(of rdzv.Outcome) bool { return reflect.DeepEqual(*o, of) }) {
		return
	}
	if c.outcome == nil || !reflect.DeepEqual(*o, *c.outcome) {
		c.fail("one outcome", "%s was told %+v, the outcome is %+v", p.node.name, o, c.outcome)
	}
}

// gaveUp checks the reason for which an agent ends by itself. Where nodes enough for a round are there, none may have waited in vain.
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
		c.fail("liveness", "%s gave up waiting, although nodes enough are there: %v", p.node.name, err)
	}
	p.node.gone = true // whoever started it is told
}

// checkCounts checks how many messages a session has cost.
func (c *checker) checkCounts(id coord.SessionID) {
	n := c.counts[id]
	if n == nil {
		return
	}
	// A report is written again while a store that stands still does not answer, for three times a session's life at most (outage).
	again := int(3*c.w.cfg.ttl/c.w.cfg.giveUp) + 1
	if limit := 8*(n.rounds+n.terms) + 12; n.reports-again > limit || n.answers > limit {
		c.fail("messages", "%s: %d reports and %d answers in %d rounds and %d terms", id, n.reports, n.answers, n.rounds, n.terms)
	}
	if life := c.w.now - n.began; n.notes > 2+n.rounds+n.terms+int(life/firstNotice) {
		c.fail("messages", "%s: %d notes in %v", id, n.notes, life)
	}
}

// decided checks that the leader's counters are right.
func (c *checker) decided(t *term) {
	l := t.l
	if c.decides++; c.decides%8 != 0 {
		return
	}
	eligible, reserve, fit := 0, 0, 0
	for _, s := range l.participants.byID {
		if s.counted.eligible {
			eligible++
		}
		if s.counted.quarantined {
			reserve++
		}
		if s.counted.matching {
			fit++
		}
	}
	running, through, alive := 0, 0, 0
	for _, p := range l.round.members {
		switch p.status {
		case active:
			running++
		case done:
			through++
		default:
		}
		if p.participant != nil {
			alive++
		}
	}
	if got, want := [6]int{l.participants.eligible, l.participants.quarantined, l.participants.matching, l.round.active, l.round.done, l.round.present}, [6]int{eligible, reserve, fit, running, through, alive}; got != want {
		c.fail("counters", "eligible, reserve, fit, active, done, alive are %v, counted %v", got, want)
	}
}
