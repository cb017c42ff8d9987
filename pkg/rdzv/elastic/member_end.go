package elastic

import "github.com/elasticrun/elasticrun/pkg/rdzv"

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
