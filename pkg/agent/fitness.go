package agent

import "context"

// UnfitError says that this machine is not fit for the job.
type UnfitError struct{ Err error }

func (e *UnfitError) Error() string { return "this machine is not fit for the job: " + e.Err.Error() }

// Unwrap returns the reason.
func (e *UnfitError) Unwrap() error { return e.Err }

// checkFitness checks whether this node may go on after one of its own workers has failed. It checks nothing if the
// failure ends the job anyway, so that the launcher ends with the worker's exit code.
func (a *Agent) checkFitness(ctx context.Context) error {
	last := a.restarts >= a.opts.Spec.MaxRestarts && !a.opts.RestartWindow
	if a.opts.Fitness == nil || last || !anyByItself(a.failures) {
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
