package rounds

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Why a member no longer takes part.

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

// recordEnd records how the last round that the agent was in has ended. The report may be about a later round that the
// agent could not enter. The agent knows nothing about that round.
func (m *Member) recordEnd(now time.Duration, self rdzv.Member) {
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

// Leave records that the agent is about to stop its workers and leave.
func (m *Member) Leave(now time.Duration) {
	m.report.Leaving, m.dirty = true, true
	if m.state == busy {
		m.ranUntil(now)
	}
}
