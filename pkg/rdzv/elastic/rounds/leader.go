package rounds

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/goodput"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Leader decides the rounds of one run during one term. It is pure: reports and the time go in through Observe and
// Decide, writes come out of Decide. The caller guards each write with the leader's key and makes the writes in order.
// If a write fails, the caller drops the leader; the next leader starts from what the store holds.
//
//	forming ──enough nodes: record──▶ running ──a failure, a loss, a newcomer──▶ halting ──all stopped: verdict─▶ forming
//	   │ too few for too long            │ all done                                  │ budget spent
//	   └─────────────────────────────────┴───────────▶ ended ◀───────────────────────┘
//
// An event costs O(1), a change of state O(nodes). Times are monotonic, from any origin.
type Leader struct {
	epoch coord.Revision
	store StoreHistory
	job   *Job // nil before the first agent
	begun int  // the N in job's key, state/job/N
	state state

	outcome      *rdzv.Outcome   // nil until the run ends
	resultExpiry OptionalTime    // when the outcome is forgotten
	preemption   *preemption     // nil unless the run is being ended by one
	closedBy     string          // who asked to close the run; empty without a request
	closers      map[string]bool // the keys of those who wait for the result of their request
	history      RunHistory

	record     Record
	hasRound   bool          // record is a decided round; otherwise only its number counts: the last round's, or -1
	firstRound int           // number of this run's first round; an earlier run with this id used the numbers below it
	inherited  bool          // an earlier leader has committed record
	termStart  time.Duration // when this term began, if it took over a decided round

	participants participantSet
	formation    formation  // of the next round, while the state is forming
	round        roundState // of the recorded round
	notices      notices

	budget          budget
	restarts        int      // charged so far, for the next record
	shortRounds     int      // rounds in a row that failed too soon
	unreachedRounds int      // rounds in a row that failed because rank 0 was not reached
	announcements   []string // for the nodes of the next round
	repeats         *repeats // what the failures so far have in common; nil before the first
	charged         bool     // the last round has failed, and was charged

	storeInvites int                      // how many nodes of a round, the first by rank, are asked to help with the store
	storeMembers map[coord.SessionID]bool // the agents that can help
	mayInvite    bool                     // there may be somebody for inviteWaiting to ask

	idle   idleTime         // of the nodes that are in no round, since the last commit
	before *goodput.Goodput // how the time was used in an earlier store of the run; nil if there was none

	waiting     int          // as in state/waiting
	unusedSince OptionalTime // since when the run has neither a job nor a result
	writes      []Write      // not returned by Decide yet
}

// state says which event the leader waits for.
type state int

const (
	forming state = iota // enough nodes for a round
	running              // the end of the round
	halting              // all workers of the round to stop
	ended                // all agents to read the outcome
)

// OptionalTime is a time that may be unset.
type OptionalTime struct {
	At  time.Duration
	Set bool
}

// setOnce sets t unless it is set.
func (t *OptionalTime) setOnce(now time.Duration) {
	if !t.Set {
		*t = OptionalTime{now, true}
	}
}

// TakeEarlier sets t to the earlier of t and other.
func (t *OptionalTime) TakeEarlier(other OptionalTime) {
	if !t.Set || other.Set && other.At < t.At {
		*t = other
	}
}

// add returns t moved by d; an unset time stays unset.
func (t OptionalTime) add(d time.Duration) OptionalTime { return OptionalTime{t.At + d, t.Set} }

// age returns how long ago t was; nil if t is unset.
func (t OptionalTime) age(now time.Duration) *time.Duration {
	if !t.Set {
		return nil
	}
	age := now - t.At
	return &age
}

// timeOfAge is the inverse of age.
func timeOfAge(now time.Duration, age *time.Duration) OptionalTime {
	if age == nil {
		return OptionalTime{}
	}
	return OptionalTime{now - *age, true}
}

// put sets the value of a key in a map that may be nil.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = value
}

// Write is one write of the leader to its run's keys. value is written as JSON; nil deletes the key.
type Write struct {
	Key    string
	Value  any
	TTL    time.Duration // 0: the key stays
	Create bool          // the key must not exist
}

// Observe records an agent's report; a nil report means that the agent's session has ended.
func (l *Leader) Observe(now time.Duration, id coord.SessionID, arrived coord.Revision, r *Report) {
	l.history.now = now
	l.idle.add(now)
	p := l.participants.byID[id]
	switch {
	case r == nil && p != nil:
		l.handleSessionEnd(now, p)
	case r == nil:
	case p == nil:
		p = l.addParticipant(AgentArrival{id, arrived, *r})
		fallthrough
	default:
		l.handleReport(now, p, *r)
	}
}

// Decide draws the conclusions from everything observed. It returns the writes that are due, and when to call it again
// if nothing is observed before; timed is false if only events matter.
func (l *Leader) Decide(now time.Duration) (writes []Write, wake time.Duration, timed bool) {
	l.history.now = now
	l.idle.add(now)
	l.adoptJob()
	l.endQuarantines(now)
	for l.step(now) {
	}
	l.publishWaiting()
	l.beginRerun()
	l.sendNotices(now)
	l.inviteWaiting(now)
	if l.job == nil && l.outcome == nil {
		l.unusedSince.setOnce(now)
	} else {
		l.unusedSince = OptionalTime{}
	}
	for _, t := range l.timers() {
		if t.Set && t.At > now && (!timed || t.At < wake) {
			wake, timed = t.At, true
		}
	}
	writes, l.writes = slices.DeleteFunc(l.writes, func(w Write) bool { return w.Key == "" }), nil
	return writes, wake, timed
}

// WritesDone records that the store has all writes of the last Decide. Agents can read a Halt only from then on, so
// their time to stop starts here.
func (l *Leader) WritesDone(now time.Duration) {
	if l.state == halting && l.round.haltUnwritten {
		l.round.haltedAt.At, l.round.haltUnwritten = now, false
	}
}

// step makes at most one transition and reports whether it made one.
func (l *Leader) step(now time.Duration) bool {
	before := l.state
	if l.job == nil {
		return false
	}
	if l.closeIfRequested(now); l.state != before {
		return true
	}
	if l.preemptIfRequested(now); l.state != before {
		return true
	}
	switch l.state {
	case forming:
		if l.preemption == nil {
			l.tryForm(now)
		}
	case running:
		l.checkRound(now)
	case halting:
		l.finishHalt(now)
	case ended:
	}
	return l.state != before
}

// timers returns the times at which a decision may be due without any event.
func (l *Leader) timers() []OptionalTime {
	switch {
	case l.outcome != nil:
		return []OptionalTime{l.resultExpiry, l.history.noticeAt()}
	case l.job == nil:
		return []OptionalTime{l.unusedSince.add(UnusedTime)}
	}
	f, r, quarantineEnd := &l.formation, &l.round, l.budget.nextQuarantineEnd()
	switch l.state {
	case forming:
		wait := l.job.LastCall
		if l.hasRound {
			wait = l.job.JoinSettle
		}
		return []OptionalTime{
			f.enoughSince.add(wait), f.tooFewSince.add(l.job.JoinTimeout), f.backoffUntil, f.useQuarantinedAt,
			l.earlierSessionsEnd(true), l.earlierSessionsEnd(false), quarantineEnd, l.notices.timer, l.preemptionEnd(),
		}
	case running:
		return []OptionalTime{
			r.growSince.add(l.job.JoinSettle), r.stuckSince.add(l.stuckTimeout()), r.growAfter, r.storeDeadline,
			quarantineEnd, l.notices.timer, r.hang.next, r.hang.lookedAt.add(lookTimeout),
		}
	case halting:
		return []OptionalTime{r.haltedAt.add(l.stopLimit()), l.notices.timer}
	default:
		return nil
	}
}

// adoptJob settles the job's parameters: those in the store, otherwise those of the agent that came first. Once all
// nodes of a run have left, new agents may start the run again with other parameters.
func (l *Leader) adoptJob() {
	ps := &l.participants
	inUse := l.job != nil && (ps.matching > 0 || l.round.present > 0 || l.round.departed > 0 || l.round.allDone())
	if l.outcome != nil || len(ps.byID) == 0 || inUse {
		return
	}
	var first *participant
	for _, p := range ps.byID {
		if (first == nil || p.arrived < first.arrived) && !l.isOfPastRun(p) {
			first = p
		}
	}
	if first == nil {
		return
	}
	l.beginRun(first.report.Job)
	if l.hasRound {
		l.abandonRun()
	}
	for _, p := range ps.byID {
		l.retractAnswer(p) // it is about the former job
		l.review(p)
	}
}

// beginRun begins the run with the parameters job, for the first time or again. Requests to close it are about the run
// before.
func (l *Leader) beginRun(job Job) {
	if l.job != nil {
		l.begun++
	}
	l.job, l.preemption = &job, nil
	l.writes = append(l.writes, Write{Key: JobKey(l.begun), Value: job}, Write{Key: KeyClose}, Write{Key: KeyPreempted},
		l.forgetFormerJob())
}

// forgetFormerJob returns the write that deletes the parameters before the current ones.
func (l *Leader) forgetFormerJob() Write {
	if l.begun == 0 {
		return Write{}
	}
	return Write{Key: JobKey(l.begun - 1)}
}

// abandonRun forgets the recorded run because all its nodes have left. The next agents start a run that continues the
// round numbers. The record stays in the store until the next round replaces it, so a later leader continues the
// numbers too.
func (l *Leader) abandonRun() {
	l.forgetSuccesses(l.record.Round, l.round.successes)
	l.record, l.firstRound = Record{Round: l.record.Round}, l.record.Round+1
	l.inherited, l.before = false, nil
	l.hasRound, l.round, l.budget = false, roundState{}, budget{}
	l.restarts, l.shortRounds, l.unreachedRounds, l.announcements = 0, 0, 0, nil
	l.repeats, l.charged = nil, false
	l.countIdle(l.history.now)
	l.startForming()
}

// endRun writes the outcome and sends it to all agents.
func (l *Leader) endRun(now time.Duration, o rdzv.Outcome) {
	if summary := l.budget.faultSummary(now); summary != "" {
		if o.Ending == rdzv.EndFailed && o.Text == "" {
			o.Text = "no restart is left"
		}
		o.Text = strings.TrimPrefix(o.Text+"; "+summary, "; ")
	}
	used := l.settled(now).Used.Rounded()
	o.Used = &used
	l.state, l.outcome, l.resultExpiry = ended, &o, OptionalTime{now + l.job.ResultTTL, true}
	l.writes = append(l.writes, Write{Key: KeyResult, Value: o, TTL: l.job.ResultTTL}, l.recordFinished(),
		Write{Key: RoundKey(l.record.Round)}, Write{Key: JobKey(l.begun)}, Write{Key: KeyClose}, Write{Key: KeyPreempted})
	l.forgetDepartures()
	l.forgetSuccesses(l.record.Round, l.round.successes)
	for _, p := range l.participants.byID {
		l.updateAnswer(p)
	}
}

// EndTooLarge ends the run because the store cannot hold what the leader has to write.
func (l *Leader) EndTooLarge(now time.Duration, err error) {
	text := "the job has too many nodes for its store: " + err.Error()
	l.endRun(now, rdzv.Outcome{Ending: rdzv.EndClosed, Text: text})
}

// endTimeout ends the run because the next round cannot be formed.
func (l *Leader) endTimeout(now time.Duration, format string, args ...any) {
	l.endRun(now, rdzv.Outcome{Ending: rdzv.EndTimeout, Restarts: l.restarts, Text: fmt.Sprintf(format, args...)})
}

// ResultExpired reports whether the outcome was kept for its whole TTL, so that the run id is free.
func (l *Leader) ResultExpired(now time.Duration) bool {
	return l.outcome != nil && now >= l.resultExpiry.At
}

// UnusedTime is how long the leader keeps leading a run without agents or a result: agents may be on their way.
const UnusedTime = time.Minute

// Deserted reports whether the run has been unused for UnusedTime.
func (l *Leader) Deserted(now time.Duration) bool {
	return l.unusedSince.Set && now >= l.unusedSince.At+UnusedTime
}

// outcomeTTL is how long a leader keeps an outcome that it found in the store. The store itself forgets it by TTL.
func outcomeTTL(j *Job) time.Duration {
	if j == nil {
		return time.Minute
	}
	return j.ResultTTL
}

// fence returns the fence of the current decision.
func (l *Leader) fence() Fence { return Fence{Epoch: l.epoch, Round: l.record.Round} }

// IsOver reports whether the run has ended.
func (l *Leader) IsOver() bool { return l.outcome != nil }

// HasRound reports whether a round was decided.
func (l *Leader) HasRound() bool { return l.hasRound }

// RoundNodes returns the number of nodes of the recorded round; 0 before the first.
func (l *Leader) RoundNodes() int { return len(l.record.Members) }

// HasDeparted reports whether a node has left the exit barrier of the round that runs.
func (l *Leader) HasDeparted() bool { return l.round.departed > 0 }

// RerunBegun reports whether the result is deleted, because agents begin the run again. The term must end.
func (l *Leader) RerunBegun() bool { return l.history.rerunBegun }

// Sessions returns the sessions of all agents that the leader knows.
func (l *Leader) Sessions() []coord.SessionID { return slices.Collect(maps.Keys(l.participants.byID)) }

// Acknowledged reports whether the run has ended, all its agents have left, and every closer has read the result.
func (l *Leader) Acknowledged() bool {
	return l.outcome != nil && l.allAwaitRerun() && len(l.closers) == 0
}
