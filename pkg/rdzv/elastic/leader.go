package elastic

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// leader decides the rounds of one run during one term. It is pure: reports and the time go in by see and decide, writes
// come out of decide. All writes are to be guarded by the leader's key and done in their order; when one
// cannot be done the leader is to be dropped, and the next one begins with what the store holds.
//
//	forming ──enough nodes: record──▶ running ──a failure, a loss, a newcomer──▶ halting ──all stopped: verdict──▶ forming
//	   │ too few for too long            │ all done                                  │ budget spent
//	   └──────────────┬──────────────────┴──────────────────────┬────────────────────┘
//	                  └────────────────▶ ended ◀────────────────┘
//
// An event costs O(1), a change of state O(nodes). Times are monotonic, from any origin.
type leader struct {
	epoch    coord.Revision
	instance instance
	job      *Job // nil before the first agent
	record   Record
	rounds   bool // record is a decided round; else its number is that of the last one, if any
	first    int  // number of the first round of this run; an earlier one, or agents that have all gone, had those before
	ended    *rdzv.Outcome
	state    state
	expiry   moment // when the outcome is forgotten

	seats    map[coord.SessionID]*seat
	identity map[string]*seat // the newest seat of each
	eligible int              // seats that could be in the next round now
	reserve  int              // seats that could be in it, but are parked
	fit      int              // seats that accept the job

	parts  []part // of the record, by rank
	active int    // parts whose workers may run
	done   int    // parts whose workers have all succeeded
	alive  int    // parts whose seat is there

	started    moment        // when the round was decided; after a change of leaders as its nodes tell
	began      time.Duration // the term, where it began with a round
	disturbed  string        // why the round cannot go on; empty while it can
	settle     moment        // when the first newcomer came to the running round
	rest       moment        // until when the round is not ended for newcomers
	halted     moment
	halting    bool // the writes that tell of it are not done yet
	stuck      int  // active parts whose agent does not respond
	stuckSince moment
	stuckHost  string // the last of them
	grown      moment // when the round was ended for newcomers, or by interrupt: failures from then on are its doing
	blame      blame
	restarts   int // charged so far, for the next record
	short      int // rounds in a row that failed too soon

	unreached       moment   // when somebody has not reached the worker store for too long
	unreachedRounds int      // rounds in a row that came to nothing because rank 0 was not reached
	news            []string // what the nodes of the next round are to be told

	enough    moment // since when there are enough nodes for the next round
	tooFew    moment // since when there are not
	recovered bool   // there were too few meanwhile, so that others may still be coming back
	backoff   moment // when the next round may be decided, at the earliest
	resort    moment // when it may be decided with parked nodes; not set where it needs none
	remark    string // what the nodes of the round are told of it; may be empty
	budget    budget

	line   []*seat // who has begun to wait since the last decide
	bell   moment  // when somebody who waits is to be told how it stands
	prompt bool    // all are to be told now: the wait will be a long one

	rerun  rerun
	unused moment // since when nobody has asked for anything, and nothing is kept for anybody

	out []write
}

// state is what the leader is waiting for.
type state int

const (
	forming state = iota // enough nodes for a round
	running              // the end of a round
	halting              // the workers of a round to be stopped
	ended                // everybody to hear of the outcome
)

// moment is a time that may not be set.
type moment struct {
	at  time.Duration
	set bool
}

// begin sets the moment unless it is set.
func (m *moment) begin(now time.Duration) {
	if !m.set {
		*m = moment{now, true}
	}
}

// write is one write of the leader to its run's keys. Value is written as JSON; nil deletes the key.
type write struct {
	key    string
	value  any
	ttl    time.Duration // 0: for good
	create bool          // the key must not exist
}

// found is what a new leader finds in the store.
type found struct {
	instance instance
	job      *Job
	record   *Record
	outcome  *rdzv.Outcome
	answers  []answered // what agents were told last
	agents   []arrival
	rerun    rerun // of a finished run, and of those before
}

// answered is what an agent was told last.
type answered struct {
	id     coord.SessionID
	answer Answer
}

// arrival is an agent's report and when its session's first one was made.
type arrival struct {
	id      coord.SessionID
	arrived coord.Revision
	report  Report
}

// newLeader takes over with what was found. Workers of the recorded round may be running on every participant that has not
// reported otherwise.
func newLeader(epoch coord.Revision, f found, now time.Duration) *leader {
	l := &leader{
		epoch: epoch, instance: f.instance, job: f.job, ended: f.outcome, record: Record{Round: -1}, rerun: f.rerun,
		seats: make(map[coord.SessionID]*seat, len(f.agents)), identity: make(map[string]*seat, len(f.agents)),
	}
	l.rerun.now = now
	if past := f.rerun.past; len(past) > 0 {
		l.record.Round = past[len(past)-1].Run.Round
		l.first = l.record.Round + 1
	}
	if f.record != nil && l.ended == nil {
		l.record, l.rounds = *f.record, true
		l.out = append(l.out, write{key: roundKey(l.record.Round - 1)}) // the leader before may not have come so far
		l.budget = budgetOf(l.record, l.job, now)
		l.restarts, l.short, l.unreachedRounds = l.record.Restarts, l.record.Short, l.record.Unreached
		l.state, l.began = running, now
		l.parts = make([]part, len(l.record.Members))
		l.active = len(l.parts)
	}
	if l.ended != nil {
		l.state = ended
		l.expiry = moment{now + outcomeTTL(l.job), true}
	}
	ranks := make(map[coord.SessionID]int, len(l.parts))
	for r, m := range l.record.Members {
		ranks[m.ID] = r
	}
	for _, a := range f.answers { // the one before may have got as far as to end the round
		if l.rounds && a.answer.Kind == Halt && a.answer.Grow && a.answer.Fence.Round == l.record.Round {
			l.grown, l.disturbed = moment{math.MinInt64, true}, a.answer.Note
		}
	}
	slices.SortFunc(f.agents, func(a, b arrival) int { return cmp.Compare(a.arrived, b.arrived) }) // so that who comes later replaces who is seated
	for _, a := range f.agents {
		s := l.admit(now, a)
		if r, member := ranks[a.id]; member {
			l.parts[r].seat, s.rank = s, r
			l.alive++
		}
		if round, fenced := l.record.Fenced[a.id]; fenced {
			s.fenced = round
		}
	}
	if l.alive == 0 && l.rounds && l.ended == nil {
		l.abandon()
	}
	for _, a := range f.agents { // once everybody is seated
		l.reported(now, l.seats[a.id], a.report)
	}
	for r := range l.parts {
		if l.parts[r].seat == nil && l.state == running {
			l.leaveRound(now, r, lost)
		}
	}
	for _, a := range f.answers {
		switch s := l.seats[a.id]; {
		case s == nil:
			l.out = append(l.out, write{key: prefixAnswer + string(a.id)})
		case s.told.Kind == "":
			s.told = Answer{Fence: a.answer.Fence, Kind: a.answer.Kind, Note: a.answer.Note} // of an older term: it is there to be deleted
		}
	}
	if l.state == running {
		l.handOut()
	}
	return l
}

// see takes note of an agent's report; nil means that its session is gone.
func (l *leader) see(now time.Duration, id coord.SessionID, arrived coord.Revision, r *Report) {
	l.rerun.now = now
	s := l.seats[id]
	switch {
	case r == nil && s != nil:
		l.vanished(now, s)
	case r == nil:
	case s == nil:
		s = l.admit(now, arrival{id, arrived, *r})
		fallthrough
	default:
		l.reported(now, s, *r)
	}
}

// decide does what follows from all that was seen. It returns the writes that are due and when it wants to be called again if nothing is
// seen before; false where only events matter.
func (l *leader) decide(now time.Duration) (writes []write, wake time.Duration, timed bool) {
	l.rerun.now = now
	l.adopt()
	l.release(now)
	for l.step(now) {
	}
	l.beginAnew()
	l.ring(now)
	if l.job == nil && l.ended == nil {
		l.unused.begin(now)
	} else {
		l.unused = moment{}
	}
	for _, m := range l.timers() {
		if m.set && m.at > now && (!timed || m.at < wake) {
			wake, timed = m.at, true
		}
	}
	writes, l.out = slices.DeleteFunc(l.out, func(w write) bool { return w.key == "" }), nil
	return writes, wake, timed
}

// wrote takes note that all writes of the last decide are done: who was told to stop has heard of it only now, and has its time
// from then on.
func (l *leader) wrote(now time.Duration) {
	if l.state == halting && l.halting {
		l.halted.at, l.halting = now, false
	}
}

// step makes at most one transition and reports whether it did.
func (l *leader) step(now time.Duration) bool {
	before := l.state
	if l.job == nil {
		return false
	}
	switch l.state {
	case forming:
		l.form(now)
	case running:
		l.watch(now)
	case halting:
		l.finishHalt(now)
	case ended:
	}
	return l.state != before
}

// timers are the times at which something may have to be decided without any event.
func (l *leader) timers() []moment {
	after := func(m moment, d time.Duration) moment { return moment{m.at + d, m.set} }
	switch {
	case l.ended != nil:
		return []moment{l.expiry, l.rerun.noteAt()}
	case l.job == nil:
		return []moment{after(l.unused, unusedTime)}
	}
	parked := l.budget.nextRelease()
	switch l.state {
	case forming:
		wait := l.job.LastCall
		if l.rounds {
			wait = l.job.JoinSettle
		}
		return []moment{after(l.enough, wait), l.backoff, after(l.tooFew, l.job.JoinTimeout), l.heldUntil(true), l.heldUntil(false), l.resort, parked, l.bell}
	case running:
		return []moment{after(l.settle, l.job.JoinSettle), after(l.stuckSince, l.stuckTime()), l.rest, l.unreached, parked, l.bell}
	case halting:
		return []moment{after(l.halted, l.job.Rejoin), l.bell}
	default:
		return nil
	}
}

// adopt settles which job this is: the one that was recorded, else that of the agent that came first. A run
// that all its nodes have left may be begun anew with other parameters.
func (l *leader) adopt() {
	if l.ended != nil || len(l.seats) == 0 || l.job != nil && (l.fit > 0 || l.alive > 0) {
		return
	}
	var first *seat
	for _, s := range l.seats {
		if (first == nil || s.arrived < first.arrived) && !l.isPast(s) {
			first = s
		}
	}
	if first == nil {
		return
	}
	job := first.report.Job
	l.job = &job
	l.out = append(l.out, write{key: keyJob, value: job})
	if l.rounds {
		l.abandon()
	}
	for _, s := range l.seats {
		l.retract(s) // what the job before would have had it told
		l.review(s)
	}
}

// abandon forgets the run that was recorded: all its nodes have gone, and who comes now begins anew. Rounds count on, also
// for the next leader: the record stays until there is another.
func (l *leader) abandon() {
	l.record, l.first = Record{Round: l.record.Round}, l.record.Round+1
	l.rounds, l.parts, l.active, l.done, l.stuck, l.stuckSince = false, nil, 0, 0, 0, moment{}
	l.budget, l.restarts, l.short, l.unreachedRounds, l.news = budget{}, 0, 0, 0, nil
	l.enterForming()
}

// end writes the outcome and tells everybody.
func (l *leader) end(now time.Duration, o rdzv.Outcome) {
	if note := l.budget.asideNote(now); note != "" {
		o.Text = strings.TrimPrefix(o.Text+"; "+note, "; ")
	}
	l.state, l.ended, l.expiry = ended, &o, moment{now + l.job.ResultTTL, true}
	l.out = append(l.out, write{key: keyResult, value: o, ttl: l.job.ResultTTL}, l.keep(), write{key: roundKey(l.record.Round)}, write{key: keyJob})
	for _, s := range l.seats {
		l.answer(s)
	}
}

// expired reports whether the outcome was kept for long enough, so that the run id is free.
func (l *leader) expired(now time.Duration) bool { return l.ended != nil && now >= l.expiry.at }

// unusedTime is how long a run is led that has neither agents nor a result, since some may be about to come.
const unusedTime = time.Minute

// deserted reports whether that time is over: the run is as if it had never been.
func (l *leader) deserted(now time.Duration) bool {
	return l.unused.set && now >= l.unused.at+unusedTime
}

// outcomeTTL is how long a leader keeps an outcome that it has found; the store forgets it by itself.
func outcomeTTL(j *Job) time.Duration {
	if j == nil {
		return time.Minute
	}
	return j.ResultTTL
}

// fence is that of the current decision.
func (l *leader) fence() Fence { return Fence{Epoch: l.epoch, Round: l.record.Round} }

// acknowledged reports whether the job has ended and none of its agents is there any more.
func (l *leader) acknowledged() bool { return l.ended != nil && l.onlyWaiting() }
