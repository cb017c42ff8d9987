package rounds

import (
	"fmt"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// checker follows what happens and checks the invariants.
type checker struct {
	w                 *world
	broken            *violation
	*simRun                           // of the store, or of the group of the last lookAt
	runs              map[int]*simRun // of other groups
	nonces            map[string]simRoundID
	owner             map[coord.SessionID]*simNode
	counts            map[coord.SessionID]*simCounts
	terms             int
	lastTerm          time.Duration
	term              *term // the current or last term
	rounds            int
	unknownOverlaps   int // overlaps with workers of an unknown earlier store
	unguardedOverlaps int // overlaps while guard and agent were paused, which nobody can prevent
	thawOverlaps      int
	faults            int
	stuck             int // reports of an agent that does not respond
	decides           int
	places            int // of all rounds
	reports           int
	answers           int
	departures        int
	close             simClose
	succeeded         map[coord.SessionID]int
	kept              int // successes of members without a session that a later leader knew
	notes             int
	usedError         float64 // the largest one, as a share of what is allowed
	groups            simGroupCounts
}

// simRun is what the checker knows of a store's run.
type simRun struct {
	current  *simRound
	last     int // the highest round decided
	outcome  *rdzv.Outcome
	past     []rdzv.Outcome // of earlier runs and stores
	charges  []time.Duration
	departed []DepartedMember // of the current run
	used     []*simRound      // all of the current run
	// preemption says that the run is preempted: until its result, or until it begins again.
	preemption  bool
	preemptedAt time.Duration // when that was recorded
	earlier     bool          // the leader knows of an earlier store
	waited      bool          // this store's first round had to wait until every worker of an earlier store had ended
}

// simCounts counts the messages of one session.
type simCounts struct {
	reports, answers, rounds, terms int
	notes                           int           // about its waits
	began                           time.Duration // the session
	ready                           time.Duration // since when it has waited for a round; 0 while it does not
}

// violation is a violated invariant.
type violation struct{ invariant, text string }

func newChecker(w *world) *checker {
	return &checker{
		w: w, simRun: &simRun{last: -1}, nonces: map[string]simRoundID{}, owner: map[coord.SessionID]*simNode{},
		counts: map[coord.SessionID]*simCounts{}, succeeded: map[coord.SessionID]int{},
		close: simClose{asked: map[coord.Revision]bool{}},
	}
}

// fail records a violation, unless there was one before.
func (c *checker) fail(invariant, format string, args ...any) {
	if c.broken == nil {
		c.broken = &violation{invariant, fmt.Sprintf(format, args...)}
		c.w.logf("VIOLATION of %s: %s", invariant, c.broken.text)
	}
}

// forgive records an event that may excuse a failure in the current round. It concerns a node, or all nodes if n is
// nil.
func (c *checker) forgive(n *simNode, why string) {
	if n != nil && n.proc != nil && n.proc.part != nil && n.proc.part.server != nil {
		n = nil // all agents may lose their store
	}
	c.forgiveRound(c.current, n, why)
	for _, run := range c.runs {
		c.forgiveRound(run.current, n, why)
	}
}

func (c *checker) forgiveRound(rd *simRound, n *simNode, why string) {
	if rd == nil || rd.forgiven != "" {
		return
	}
	for _, m := range rd.record.Members {
		if n == nil || c.owner[m.ID] == n {
			rd.forgiven = why
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
		c.forgive(nil, "new leader")
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
				c.forgive(nil, "a session ended")
			}
		}
	}
	c.checkCounts(ses.id)
}

// slow records that an agent takes long to enter.
func (c *checker) slow(p *agentProc) {
	c.forgive(p.node, "slow to enter")
	if n := c.counts[p.session]; n != nil {
		n.ready = 0
	}
}

func (c *checker) died(p *agentProc) { c.forgive(p.node, "agent ended") }

// committing checks a commit before the store executes it.
func (c *checker) committing(s *simStore, by coord.Revision, ops []simOp) {
	if by == 0 {
		return
	}
	k := s.keys[KeyLeader]
	if k == nil || k.create != by {
		c.fail("no stale write", "epoch %d writes %s, but the leader's key is gone or another's", by, ops[0].key)
	}
}

// committed checks what a commit has written.
func (c *checker) committed(s *simStore, ses *simSession, by coord.Revision, ops []simOp) {
	for _, op := range ops {
		if op.key == KeyPreempted {
			if c.preemption = !op.del; c.preemption {
				c.preemptedAt = c.w.now
			}
		}
		if op.del && op.key == KeyResult {
			c.rerunBegun()
		}
		if op.del {
			continue
		}
		switch v := op.value.(type) {
		case Record:
			c.w.logf("round %d decided by epoch %d: %d members, restarts %d: %v", v.Round, by, len(v.Members),
				v.Restarts, ids(v.Members))
			c.groupRecord(s, v)
			c.record(v, by)
		case Job:
			c.close.job, c.used = s.createOf(op.key), nil
		case DepartedMember:
			c.w.logf("rank %d has departed from round %d", v.Rank, v.Round)
			c.departureRecorded(v)
		case rdzv.Outcome:
			c.w.logf("outcome: %s after %d restarts, cause known: %v, %s", v.Ending, v.Restarts, v.Cause != nil, v.Text)
			c.result(v)
			if v.Ending == rdzv.EndClosed {
				c.checkClosed(by)
			}
		case Answer:
			id := coord.SessionID(strings.TrimPrefix(op.key, PrefixAnswer))
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
			if rd := c.w.rounds[simRoundID{s.instance, v.Fence.Round}]; v.Kind == Halt && rd != nil && v.Grow {
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
			if rd := c.current; rd != nil && v.Phase == Ready && v.Fence.Epoch != 0 &&
				v.Fence.Round == rd.record.Round && !v.Silent && !v.Leaving {
				rd.ready[ses.id] = true
			}
			if v.Stuck {
				c.stuck++
			}
			if v.Silent || v.Leaving {
				c.forgive(c.owner[ses.id], "silent or leaving")
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

// checkCounts checks how many messages a session has cost.
func (c *checker) checkCounts(id coord.SessionID) {
	n := c.counts[id]
	if n == nil {
		return
	}
	// A report is written again while a paused store does not answer, at most for three TTLs (outage).
	again := int(3*c.w.cfg.ttl/c.w.cfg.giveUp) + 1
	if limit := 8*(n.rounds+n.terms) + 12; n.reports-again > limit || n.answers > limit {
		c.fail("messages", "%s: %d reports and %d answers in %d rounds and %d terms", id, n.reports, n.answers,
			n.rounds, n.terms)
	}
	if life := c.w.now - n.began; n.notes > 2+n.rounds+n.terms+int(life/FirstNotice) {
		c.fail("messages", "%s: %d notes in %v", id, n.notes, life)
	}
}

// decided checks the leader's counters after a decision, every eighth time.
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
	got := [6]int{
		l.participants.eligible, l.participants.quarantined, l.participants.matching, l.round.active, l.round.done,
		l.round.present,
	}
	if want := [6]int{eligible, reserve, fit, running, through, alive}; got != want {
		c.fail("counters", "eligible, reserve, fit, active, done, alive are %v, counted %v", got, want)
	}
}
