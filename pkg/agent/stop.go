package agent

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// leftoverGrace is the time between a signal and SIGKILL for processes that outlive their worker, when the job goes on
// or has ended by itself.
const leftoverGrace = 2 * time.Second

// stopPolicy returns how to stop the group now:
//   - while ctx lives, with SIGTERM and the restart grace, or the shutdown timeout if the job has ended, but not after
//     the KillBy of a Stop;
//   - if the launcher received a stop signal, with the launcher's signal and the shutdown timeout for all processes;
//   - else with SIGKILL.
func (a *Agent) stopPolicy(ctx context.Context) procs.StopPolicy {
	policy := procs.StopPolicy{
		Signal: syscall.SIGTERM, Grace: a.opts.RestartGrace, Leftovers: leftoverGrace,
	}
	var signal *SignalError
	switch {
	case ctx.Err() == nil && a.halt != nil && (a.halt.Final || a.halt.Preemption != nil):
		policy.Grace = a.opts.ShutdownTimeout
	case ctx.Err() == nil:
	case errors.As(context.Cause(ctx), &signal):
		policy.Signal, policy.Grace, policy.Leftovers = signal.Signal, a.opts.ShutdownTimeout, a.opts.ShutdownTimeout
		if signal.Signal == syscall.SIGINT {
			policy.Advice = "press Ctrl-C again after a second to kill them now"
		}
	default:
		policy.Signal, policy.Grace = syscall.SIGKILL, 0
	}
	if a.halt != nil && !a.halt.KillBy.IsZero() {
		policy.Grace = min(policy.Grace, max(0, time.Until(a.halt.KillBy)))
	}
	return policy
}

// stop stops the running workers, if any, and waits for their output. No grace outlasts the KillBy of a Stop, not even
// of one that arrives during the wait. If ctx ends meanwhile, the stop goes on by its policy, but for at most the
// shutdown timeout, and it no longer waits for a console that nobody reads.
func (a *Agent) stop(ctx context.Context, policy procs.StopPolicy) error {
	if a.processes == nil {
		return nil
	}
	p := a.processes
	a.processes = nil
	watch := watchForKill(ctx, a.opts, a.round.Number, policy, func(s rdzv.Stop) {
		a.announcePreemption(p, s, time.Now())
	})
	policy.KillNow = watch.kill
	err := a.timed(events.StepStop, func() error { return p.Stop(policy) })
	a.tree = p.ProcessTree()
	if stop := watch.end(); stop != nil {
		if a.halt == nil {
			a.halt = stop
		}
		a.notePreemption(stop)
	}
	if err != nil {
		a.unread = p // the output of workers that did end is complete, or will be in a moment
		return errors.Join(err, a.setState(Unknown))
	}
	a.opts.Rendezvous.Stopped()
	a.settle(ctx, p)
	return nil
}

// withGrace returns a context that ends d after ctx does.
func withGrace(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unregister := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-late.Done():
		}
	})
	return late, func() {
		unregister()
		cancel()
	}
}

// duplicateSignalWait is how long after a worker the launcher may get its own copy of a signal that the whole process
// group or control group got.
const duplicateSignalWait = 50 * time.Millisecond

// awaitDuplicateSignal distinguishes a failure from the effect of a signal that all processes of a control group got,
// workers first. In that case the launcher gets its own copy in a moment, and awaitDuplicateSignal returns the
// context's cause.
func awaitDuplicateSignal(ctx context.Context, failed time.Time) error {
	timer := time.NewTimer(time.Until(failed.Add(duplicateSignalWait)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	if ctx.Err() != nil && time.Since(failed) < time.Second {
		return context.Cause(ctx)
	}
	return nil
}

// duplicateSignalAtEnd is checkDuplicateSignal for a job that ends, on its only node, with a failure.
func (a *Agent) duplicateSignalAtEnd(ctx context.Context, o rdzv.Outcome) error {
	if o.Ending != rdzv.EndFailed || a.failedAt.IsZero() || a.round.WorldSize > 1 {
		return nil
	}
	return a.checkDuplicateSignal(ctx)
}

// checkDuplicateSignal waits until the failure of this node cannot be the effect of a signal that the launcher got,
// too. If it is, it drops the failure and returns the context's cause.
func (a *Agent) checkDuplicateSignal(ctx context.Context) error {
	err := awaitDuplicateSignal(ctx, a.failedAt)
	if err != nil {
		a.failures = nil
		a.history.reopen()
	}
	return err
}
