package agent

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// conclude returns the result of a job from the outcome that the rendezvous reports.
func (a *Agent) conclude(end *rdzv.EndedError) (RunResult, error) {
	o := end.Outcome
	switch {
	case o.Ending == rdzv.EndFailed && o.Cause == nil:
		a.log.Error().Str("why", o.Text).Msg("the job has failed")
	case o.Ending == rdzv.EndFailed && o.Text != "":
		a.log.Warn().Str("why", o.Text).Msg("the job is not restarted")
	}
	a.restarts = o.Restarts
	r := RunResult{State: Succeeded, Restarts: o.Restarts, NothingStarted: a.nothingStarted(end)}
	if o.Ending == rdzv.EndFailed {
		now := time.Now()
		r.State, r.Failures, r.Rule = Failed, a.failures, o.Rule
		if o.Rule != "" {
			r.RuleText = o.Text
		}
		r.Cause, r.Others = rootCause(o.Cause, a.failures, now), allIncoming(o.Others, now)
	}
	if root, known := r.RootCause(); known {
		maps.DeleteFunc(r.Failures, func(_ int, f failure.Failure) bool { return f.OnlyAsCause() && !f.Same(root) })
	}
	a.history.end(endOfOutcome(o), o.Text, nil)
	return r, a.setState(r.State)
}

// nothingStarted says why no worker was started on this node; empty if one was.
func (a *Agent) nothingStarted(end *rdzv.EndedError) string {
	id, ending := a.opts.Rendezvous.RunID(), end.Outcome.Ending
	switch {
	case a.shown != nil:
		return ""
	case end.Late != nil:
		return fmt.Sprintf("nothing was started here: run %q already finished (%s)", id, end.Late.Describe(ending))
	default:
		return fmt.Sprintf("nothing was started here: run %q %s without this node", id, ending)
	}
}

// finished reports whether err says that the job has succeeded or failed, and returns that error.
func finished(err error) (*rdzv.EndedError, bool) {
	if ended, ok := errors.AsType[*rdzv.EndedError](err); ok {
		return ended, ended.Outcome.Ending == rdzv.EndSucceeded || ended.Outcome.Ending == rdzv.EndFailed
	}
	return nil, false
}

// stateAfter returns the state of a group whose run has ended with err.
func stateAfter(err error) WorkerState {
	var signal *SignalError
	if errors.As(err, &signal) || errors.Is(err, rdzv.ErrRendezvous) || errors.As(err, new(*UnfitError)) {
		return Stopped
	}
	return Unknown
}

// endAfter returns how the last round has ended, given the error that ended the run.
func endAfter(err error) string {
	if _, signal := errors.AsType[*SignalError](err); signal {
		return report.EndSignal
	}
	return report.EndError
}

// endOfOutcome returns how a round that was still open has ended, given the outcome of the job.
func endOfOutcome(o rdzv.Outcome) string {
	if o.Ending == rdzv.EndSucceeded {
		return report.EndSuccess
	}
	return report.EndStopped
}
