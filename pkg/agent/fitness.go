package agent

import "context"

// Fitness tells whether this machine is fit for the job.
type Fitness interface {
	// Check returns why it is not, or nil. It ends soon after ctx does.
	Check(ctx context.Context) error
}

// UnfitError says that this machine is not fit for the job.
type UnfitError struct{ Err error }

func (e *UnfitError) Error() string { return "this machine is not fit for the job: " + e.Err.Error() }

// Unwrap returns why.
func (e *UnfitError) Unwrap() error { return e.Err }

// examine asks whether this node may go on after one of its own workers has failed. Where the failure ends the job anyway nobody is asked, so that
// the worker's code is what the launcher ends with.
func (a *Agent) examine(ctx context.Context) error {
	last := a.restarts >= a.opts.Spec.MaxRestarts && !a.opts.ForgetsRestarts
	if a.opts.Fitness == nil || last || len(byThemselves(a.failures)) == 0 {
		return nil
	}
	err := a.opts.Fitness.Check(ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return &UnfitError{err}
	}
	return nil
}
