package elastic

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/goodput"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// How a member says why it takes part no more.

// endText says how the job has ended.
func endText(o *rdzv.Outcome) string {
	if o == nil || o.Text == "" {
		return "the job has ended"
	}
	return "the job has ended: " + o.Text
}

// refusal returns the error for an agent that the leader has refused.
func refusal(a Answer) error {
	if a.Late != nil && a.Outcome != nil {
		return &FinishedError{Ending: a.Outcome.Ending, Late: *a.Late}
	}
	return &RefusedError{Why: a.Note}
}

// RefusedError says that the agent does not fit the job that has the run id.
type RefusedError struct{ Why string }

func (e *RefusedError) Error() string { return "the job refuses this node: " + e.Why }

// Unwrap returns [rdzv.ErrRefused].
func (e *RefusedError) Unwrap() error { return rdzv.ErrRefused }

// recordEnd records how the last round that the agent was in has ended. The report may be about a later one, which it
// could not enter: of that it knows nothing.
func (m *member) recordEnd(now time.Duration, self rdzv.Member) {
	if m.fence.Epoch != 0 && m.fence.Round != m.entered {
		self = rdzv.Member{}
		m.report.Steps, m.report.Started, m.report.Ran = nil, nil, new(time.Duration(0))
	}
	m.report.Finished, m.report.Stop, m.report.ExcludeNode = self.Finished, self.Stop, self.ExcludeNode
	switch {
	case m.hang != nil && m.fence.Round == m.entered: // the report has its age
		m.report.Failure = m.hang
	case self.Failure != nil:
		m.report.Failure, m.report.failedAt = self.Failure, now-self.Failure.Age
	default:
		m.report.Failure = nil
	}
}

// ranUntil records until when the workers of the round ran. The first time stands.
func (m *member) ranUntil(at time.Duration) {
	if m.report.Ran == nil {
		m.report.Ran = new(max(0, at-m.began))
	}
}

// started records that the workers of the round have been started.
func (m *member) started(now time.Duration) {
	if m.state != ready && m.report.Started == nil {
		m.report.Started = new(now - m.began)
	}
}

// usedBefore returns how the time was used, as far as this agent knows, before another store replaces the one that had
// the ledger. It leaves out what happened since the last round ended.
func (m *member) usedBefore() *goodput.Goodput {
	if m.workerCount == 0 { // no round, or it is known already
		return m.report.Before
	}
	var books ledger
	if m.before != nil {
		books.Used = *m.before
	}
	own := memberTime{workers: m.workerCount, steps: m.report.Steps, started: m.report.Started, ran: m.report.Ran}
	if own.ran != nil {
		own.present = *own.ran
	}
	used := books.settle(roundTime{members: []memberTime{own}, elapsed: own.present}).Used.Rounded()
	used.LostUnknown = used.Steps
	m.before, m.workerCount = nil, 0
	return &used
}

// recordSteps records the steps that the workers have shown in the round that the agent was in last. The times in
// steps are on the clock of now.
func (m *member) recordSteps(steps *stepTimes) {
	if m.state == ready || steps.last() == nil {
		return
	}
	for i := range steps.Marks {
		steps.Marks[i].At -= m.began
	}
	m.report.Steps, m.dirty = steps, true
}

// leave records that the agent is about to stop its workers and leave.
func (m *member) leave(now time.Duration) {
	m.report.Leaving, m.dirty = true, true
	if m.state == busy {
		m.ranUntil(now)
	}
}
