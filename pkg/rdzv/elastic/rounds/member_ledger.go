package rounds

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/goodput"
)

// ranUntil records until when the workers of the round ran. The first time stands.
func (m *Member) ranUntil(at time.Duration) {
	if m.report.Ran == nil {
		m.report.Ran = new(max(0, at-m.began))
	}
}

// Started records that the workers of the round have been started.
func (m *Member) Started(now time.Duration) {
	if m.state != ready && m.report.Started == nil {
		m.report.Started = new(now - m.began)
	}
}

// RecordSteps records the steps that the workers have shown in the round that the agent was in last. The times in
// steps are on the clock of now.
func (m *Member) RecordSteps(steps *StepTimes) {
	if m.state == ready || steps.last() == nil {
		return
	}
	for i := range steps.Marks {
		steps.Marks[i].At -= m.began
	}
	m.report.Steps, m.dirty = steps, true
}

// beginBooks begins to count the time of a round. The time used before comes from the leader; the marks are this
// agent's own.
func (m *Member) beginBooks(now time.Duration, p *Place) {
	if m.workerCount > 0 {
		m.books = m.books.settle(m.roundTime(now))
	}
	m.books.Used, m.books.Unstepped = goodput.Goodput{}, 0
	if p.Used != nil {
		m.books.Used = goodput.Goodput(*p.Used)
	}
	m.began, m.workerCount, m.outsideSince = now, p.Assignment.GlobalWorldSize, OptionalTime{}
	m.report.Steps, m.report.Started, m.report.Ran = nil, nil, nil
}

// roundTime describes how the time of the agent's last round was used, as far as the agent knows. It treats all nodes
// as one member.
func (m *Member) roundTime(now time.Duration) roundTime {
	if m.outsideSince.Set {
		now = min(now, m.outsideSince.At)
	}
	r := roundTime{elapsed: max(0, now-m.began), preempted: m.preemptedRound == m.entered+1}
	all := memberTime{
		workers: m.workerCount, present: r.elapsed, done: m.report.Phase == Done,
		started: m.report.Started, ran: m.report.Ran, steps: m.report.Steps,
	}
	if all.ran != nil && !all.done {
		r.halted = OptionalTime{*all.ran, true}
	}
	r.members = []memberTime{all}
	return r
}

// Used returns how the time was used, as far as this agent knows; nil before its first round.
func (m *Member) Used(now time.Duration) *goodput.Goodput {
	if m.workerCount == 0 {
		return nil
	}
	used := m.books.settle(m.roundTime(now)).Used.Rounded()
	return &used
}

// usedBefore returns how the time was used when another store replaces the one that had the ledger. It leaves out what
// happened since the last round ended.
func (m *Member) usedBefore(now time.Duration) *goodput.Goodput {
	if m.workerCount == 0 { // no round, or it is known already
		return m.report.Before
	}
	r := m.roundTime(now)
	if r.halted.Set {
		r.elapsed = min(r.elapsed, r.halted.At)
		r.members[0].present = r.elapsed
	}
	used := m.books.settle(r).Used.Rounded()
	used.LostUnknown = used.Steps
	m.books, m.workerCount, m.outsideSince = ledger{}, 0, OptionalTime{}
	return &used
}
