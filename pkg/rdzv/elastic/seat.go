package elastic

import (
	"fmt"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// seat is an agent that is there, as the leader knows it.
type seat struct {
	id      coord.SessionID
	arrived coord.Revision
	report  Report
	rank    int    // in the record; -1 for none
	fenced  int    // round whose workers it did not stop in time, -1 for none
	misfit  string // why it does not fit the job; empty if it does
	newer   bool   // another agent has come with its identity
	counted struct{ eligible, reserve, fit bool }
	wait    wait
	told    Answer
	written int // where in leader.out told is, if decide has not returned it yet
}

// part is one node's part in the recorded round.
type part struct {
	seat           *seat // nil once it is gone
	fate           fate
	stuck          bool   // its agent does not respond; only while fate is active
	unreachedSince moment // since when it has tried in vain to reach the worker store
}

// fate is how a node stands to the recorded round.
type fate int

const (
	active  fate = iota // its workers may run
	stopped             // they have been stopped
	done                // all of them succeeded
	left                // the node has gone as it had announced
	lost                // the node has gone without a word
	fenced              // it has not stopped in time, and the others go on without it
)

// admit gives a seat to an agent that was not known.
func (l *leader) admit(now time.Duration, a arrival) *seat {
	s := &seat{id: a.id, arrived: a.arrived, report: a.report, rank: -1, fenced: -1}
	l.seats[a.id] = s
	name := a.report.Node.Identity
	other := l.identity[name]
	if other != nil && other.arrived > s.arrived {
		other, s = s, other
	}
	l.identity[name] = s
	if other != nil {
		l.supersede(other)
	}
	return l.seats[a.id]
}

// supersede notes that another agent has come with the identity of old. That does not prove that the workers of old are gone:
// its part in the round ends when it reports so or its session ends. A part that is done needs no agent.
func (l *leader) supersede(old *seat) {
	old.newer = true
	l.review(old)
	if old.rank >= 0 && l.state != ended && l.parts[old.rank].fate != done {
		l.disturb("%s has a new agent", old.report.Node.Host)
	}
}

// reported takes note of what an agent says.
func (l *leader) reported(now time.Duration, s *seat, r Report) {
	s.report = r
	l.noteEarlier(now, &r)
	if r.Close && l.ended == nil && l.job != nil {
		l.end(now, rdzv.Outcome{Ending: rdzv.EndClosed, Restarts: l.restarts, Text: "closed by " + r.Node.Host})
	}
	if s.rank >= 0 && l.state != ended {
		l.reportedPart(now, s, r)
	}
	l.review(s)
}

// reportedPart takes note of what a participant says of the recorded round.
func (l *leader) reportedPart(now time.Duration, s *seat, r Report) {
	p, host := &l.parts[s.rank], r.Node.Host
	if r.Leaving && r.Phase != Done && p.fate != done {
		l.disturb("%s leaves", host)
	}
	if r.Fence.Round != l.record.Round || r.Fence.Epoch == 0 {
		return
	}
	if p.fate == fenced { // too late for the verdict, not for the next round
		if r.Phase == Ready {
			p.fate = stopped
		}
		return
	}
	l.backdate(now, r.Uptime)
	l.noteUnreached(now, p, r.Unreached)
	if r.Failure != nil && (!l.grown.set || now-r.Failure.Age < l.grown.at) {
		l.blame.tell(now, s.rank, *r.Failure)
		switch {
		case r.Failure.OnlyStopped:
		case r.Failure.Waited:
			l.disturb(rdzv.WhyWaited+" on %s", host)
		default:
			l.disturb(rdzv.WhyFailed+" on %s", host)
		}
	}
	switch {
	case r.Phase == Busy && p.fate == active:
		l.setStuck(now, p, r.Stuck)
	case r.Phase == Busy:
	case r.Phase == Failing:
		l.disturb(rdzv.WhyFailed+" on %s", host)
	case r.Phase == Ready && (p.fate == active || p.fate == done):
		l.disturb("%s has stopped its workers", host)
		l.retire(p, stopped)
	case r.Phase == Done && p.fate == active && l.state == running: // once it is to stop, only Ready will do
		l.retire(p, done)
	}
}

// backdate learns, after a change of leaders, when the round began, and so how old what its record holds is.
func (l *leader) backdate(now, uptime time.Duration) {
	at := now - uptime
	if l.started.set && l.started.at <= at || !l.started.set && at >= l.began {
		return
	}
	was := l.began
	if l.started.set {
		was = l.started.at
	}
	l.started = moment{at, true}
	l.budget.shift(was - at)
}

// retire settles a part of which no worker is left.
func (l *leader) retire(p *part, f fate) {
	switch p.fate {
	case active:
		l.setStuck(0, p, false)
		l.active--
	case done:
		l.done--
	case stopped, left, lost, fenced:
	}
	if f == done {
		l.done++
	}
	p.fate = f
}

// disturb notes why the round that runs cannot go on. The first reason stands.
func (l *leader) disturb(format, host string) {
	if l.state == running && l.disturbed == "" {
		l.disturbed = fmt.Sprintf(format, host)
	}
}

// interrupt notes, unless there is another reason, that the round that runs is ended though no worker has failed: failures from now on are its doing.
func (l *leader) interrupt(now time.Duration, format, host string) {
	if l.state == running && l.disturbed == "" {
		l.grown.begin(now)
	}
	l.disturb(format, host)
}

// vanished takes note that an agent's session has ended.
func (l *leader) vanished(now time.Duration, s *seat) {
	delete(l.seats, s.id)
	if s.rank < 0 && s.counted.eligible && !s.report.Leaving && l.rounds && l.state != running && l.state != ended {
		l.budget.lose(now, s.report.Node.Identity, l.job) // the round may have been ended for its sake
	}
	if l.identity[s.report.Node.Identity] == s {
		delete(l.identity, s.report.Node.Identity)
	}
	l.count(s, false, false, false)
	if s.told.Kind != "" {
		l.out = append(l.out, write{key: prefixAnswer + string(s.id)})
	}
	if s.rank < 0 {
		return
	}
	fate := lost
	if s.report.Leaving {
		fate = left
	}
	if l.state != ended {
		l.leaveRound(now, s.rank, fate)
	}
	l.parts[s.rank].seat = nil
	l.alive--
}

// leaveRound ends a node's part in the recorded round, because it is gone. One whose workers had succeeded has done its part.
func (l *leader) leaveRound(now time.Duration, rank int, f fate) {
	p := &l.parts[rank]
	switch p.fate {
	case done, lost, left, fenced:
		return
	case active, stopped:
	}
	l.retire(p, f)
	if f == lost {
		name := l.record.Members[rank].Identity
		l.budget.lose(now, name, l.job)
		if s := l.identity[name]; s != nil { // it may have come back before
			l.review(s)
		}
		l.disturb("%s was lost", l.hostOf(rank))
	} else {
		l.disturb("%s has left", l.hostOf(rank))
	}
}

// hostOf names a participant for people.
func (l *leader) hostOf(rank int) string {
	if s := l.parts[rank].seat; s != nil {
		return s.report.Node.Host
	}
	return "node " + l.record.Members[rank].Identity
}

// review decides anew whether an agent fits the job and could be in the next round, and what it is to be told.
func (l *leader) review(s *seat) {
	if l.job == nil {
		if l.ended != nil || l.isPast(s) { // the job's parameters are gone already
			l.answer(s)
		}
		return
	}
	s.misfit = ""
	if l.isPast(s) {
		s.misfit = pastNote
	} else if diff := s.report.Job.differs(*l.job); diff != "" {
		s.misfit = diff
	} else if s.newer {
		s.misfit = fmt.Sprintf("another agent has come for the same node (%s)", s.report.Node.Identity)
	}
	fits := s.misfit == ""
	idle := fits && !s.report.Leaving && !l.busy(s)
	parked := l.budget.isParked(s.report.Node.Identity)
	l.count(s, idle && !parked, idle && parked, fits)
	l.queue(s, idle)
	l.answer(s)
}

// busy reports whether workers of the agent may run, or have left something behind that it has to clear first.
func (l *leader) busy(s *seat) bool {
	if s.rank >= 0 && l.parts[s.rank].fate != stopped {
		return true
	}
	cleared := s.report.Fence.Round
	if s.report.Fence.Epoch == 0 { // it knows of no round yet
		cleared = -1
	}
	return s.report.Phase != Ready || s.fenced > cleared
}

func (l *leader) count(s *seat, eligible, reserve, fit bool) {
	step := func(n *int, was *bool, is bool) {
		if *was != is {
			*was = is
			if is {
				*n++
			} else {
				*n--
			}
		}
	}
	step(&l.eligible, &s.counted.eligible, eligible)
	step(&l.reserve, &s.counted.reserve, reserve)
	step(&l.fit, &s.counted.fit, fit)
}

// answer tells an agent what is expected of it, unless it was told so before. A participant is told by handOut and halt.
func (l *leader) answer(s *seat) {
	switch {
	case l.ended != nil:
		l.tellFinished(s)
	case l.isPast(s):
		l.tellPast(s)
	case s.newer:
		l.tell(s, Answer{Kind: Replace, Note: s.misfit})
	case s.misfit != "":
		l.tell(s, Answer{Kind: Refuse, Note: s.misfit})
	case s.rank >= 0 || s.fenced >= 0 && l.busy(s):
	case s.counted.reserve && l.state == forming && l.eligible < l.job.Min: // it may be needed; who waits for long is told
	case l.budget.isParked(s.report.Node.Identity):
		l.park(s, l.budget.parkedNote(s.report.Node.Identity))
	default:
		l.park(s, l.spare())
	}
}

// park tells a seat why it has to wait, if there is a reason, unless it was told that, or more, before.
func (l *leader) park(s *seat, why string) {
	if why == "" || s.told.Kind == Wait && s.told.Fence == l.fence() && strings.HasPrefix(s.told.Note, why) {
		return
	}
	l.tell(s, Answer{Kind: Wait, Note: why})
}

// tell writes an answer that the agent has not got yet.
func (l *leader) tell(s *seat, a Answer) {
	a.Fence = l.fence()
	if s.told.Kind == a.Kind && s.told.Fence == a.Fence && s.told.Note == a.Note {
		return
	}
	l.retract(s)
	s.told, s.written = Answer{Fence: a.Fence, Kind: a.Kind, Note: a.Note}, len(l.out) // the rest need not be kept
	l.out = append(l.out, write{key: prefixAnswer + string(s.id), value: a})
}

// retract takes back an answer that is not written yet.
func (l *leader) retract(s *seat) {
	if s.told.Kind != "" && s.written < len(l.out) && l.out[s.written].key == prefixAnswer+string(s.id) {
		l.out[s.written].key, s.told = "", Answer{}
	}
}
