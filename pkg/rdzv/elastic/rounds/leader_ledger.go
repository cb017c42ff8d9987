package rounds

import "time"

// idleTime counts the time of nodes outside the round, in worker-seconds since the last commit.
type idleTime struct {
	workers int // of these nodes now
	sum     float64
	at      time.Duration // sum covers the time until at
}

// add counts the time until now.
func (i *idleTime) add(now time.Duration) {
	i.sum += float64(i.workers) * max(0, now-i.at).Seconds()
	i.at = max(i.at, now)
}

// change records whether the workers of an agent are idle. The time until now was added.
func (i *idleTime) change(p *participant, idle bool) {
	if idle {
		i.workers += p.report.Node.Nproc - p.idle
		p.idle = p.report.Node.Nproc
		return
	}
	i.workers -= p.idle
	p.idle = 0
}

// countIdle begins to count the time of the nodes that are in no round, after the round has changed. After a change of
// leaders it begins with the commit of the round.
func (l *Leader) countIdle(now time.Duration) {
	l.idle = idleTime{at: now}
	if began := l.roundBegan(); l.hasRound {
		l.idle.at = min(now, began)
	}
	for _, p := range l.participants.byID {
		p.idle = 0
		l.idle.change(p, p.rank < 0 && p.counted.matching)
	}
}

// roundBegan returns when the recorded round was committed. A later leader learns it from a member whose workers run,
// or else from the wall clocks of both leaders.
func (l *Leader) roundBegan() time.Duration {
	at, r := l.history.now, &l.round
	switch {
	case !l.inherited && r.startedAt.Set:
		return r.startedAt.At
	case !l.inherited:
		return at
	case r.enteredAt.Set:
		return min(at, r.enteredAt.At)
	}
	if at = min(at, l.termStart); r.startedAt.Set {
		at = min(at, r.startedAt.At)
	}
	if books := l.record.Ledger; books != nil {
		at = min(at, l.history.now-l.history.wallNow().Sub(books.Committed))
	}
	return at
}

// recordEntry learns from a member that has confirmed the round to this leader when it has entered it.
func (l *Leader) recordEntry(now time.Duration, r *Report) {
	if l.inherited && r.Phase == Busy && r.Fence.Epoch == l.epoch {
		l.round.enteredAt.TakeEarlier(OptionalTime{now - r.Uptime, true})
	}
}

// settled returns how the time was used until now.
func (l *Leader) settled(now time.Duration) ledger {
	l.idle.add(now)
	var books ledger
	switch {
	case l.record.Ledger != nil:
		books = *l.record.Ledger
	case l.before != nil: // in an earlier store
		books.Used = *l.before
	}
	if l.hasRound {
		books = books.settle(l.roundTime(now))
	}
	books.Used.Idle += l.idle.sum
	return books
}

// roundTime describes how the recorded round's time was used, as far as the leader knows.
func (l *Leader) roundTime(now time.Duration) roundTime {
	began := l.roundBegan()
	r := roundTime{
		members: make([]memberTime, len(l.round.members)), elapsed: max(0, now-began),
		halted: l.round.haltedAt.add(-began), preempted: l.preemption != nil && l.preemption.ordered,
	}
	for rank := range l.round.members {
		m := &l.round.members[rank]
		t := memberTime{
			workers: m.workers, present: r.elapsed, done: m.departed || m.status == done,
			silent: l.inherited && m.end == nil,
		}
		switch {
		case m.endedAt.Set:
			t.present = max(0, m.endedAt.At-began)
		case m.participant == nil: // it was gone before this leader came
			t.present = -1
		}
		if end := m.end; end != nil && end.Fence.Round == l.record.Round {
			t.steps, t.started, t.ran = end.Steps, end.Started, end.Ran
			t.done = t.done || end.Phase == Done || end.Finished
		}
		r.members[rank] = t
	}
	return r
}
