package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// loop runs the group round after round, until the rendezvous says that the job has ended. It is seed 002's run
// loop without its polling, and without its budget: what follows from a failure is the rendezvous' decision.
func (a *Agent) loop(ctx context.Context) (RunResult, error) {
	role := a.opts.Spec.Role
	a.log.Info().Str("role", role).Str("entrypoint", a.opts.Spec.EntrypointName()).Msg("starting workers")
	err := a.timed(events.StepInitialize, func() error { return a.initialize(ctx) })
	for err == nil {
		var failed *procs.Exit
		if failed, err = a.watch(ctx); err != nil {
			break
		}
		a.emit(events.Event{Kind: events.KindState, State: a.state().String()})
		if a.state() == Succeeded {
			if err = a.succeed(ctx); err == nil && a.halt == nil {
				a.history.end(report.EndSuccess, "", nil)
				return RunResult{State: Succeeded, Restarts: a.restarts}, nil
			}
		}
		if err == nil {
			err = a.restart(ctx, failed)
		}
	}
	if end, ok := finished(err); ok {
		if err = a.echoed(ctx, end.Outcome); err == nil {
			return a.conclude(end)
		}
	}
	return RunResult{}, err
}

// watch blocks until the round is over for this node: a worker has failed, which it returns, all have succeeded,
// or the rendezvous wants them stopped (a.halt).
func (a *Agent) watch(ctx context.Context) (failed *procs.Exit, err error) {
	if a.halt != nil { // it was over before workers were started
		return nil, nil
	}
	stopSampling := a.sampleUsage()
	defer stopSampling()
	late := a.newOverdue()
	defer late.close(&a.closing)
	for {
		select {
		case exit := <-a.processes.Exits():
			a.emitExit(exit)
			if !exit.Success() {
				return &exit, a.setState(Failed)
			}
			a.left = append(a.left, exit)
			late.ended(exit.LocalRank)
			if a.running--; a.running == 0 {
				a.done = true
				return nil, a.setState(Succeeded)
			}
		case <-late.begin():
			a.watchFiles(late)
		case path := <-late.written():
			late.expect(path, time.Now())
		case <-late.expired():
			if len(a.processes.Exits()) > 0 { // it may be the one that just ends
				late.again()
				continue
			}
			a.stuck = late.give(a.processes.PIDs())
			return a.stuck, a.setState(Failed)
		case stop := <-a.opts.Rendezvous.Stops():
			if stop.Round == a.round.Number { // else it is about workers that are gone
				a.halted(stop)
				return nil, nil
			}
		case sig := <-a.opts.Forward:
			a.processes.Signal(sig.(syscall.Signal))
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// halted ends the round by a Stop.
func (a *Agent) halted(stop rdzv.Stop) {
	a.halt = &stop
	a.log.Warn().Int("round", stop.Round).Str("why", stop.Why).Msg("stopping the worker group")
}

// initialize runs a rendezvous and starts the workers (seed 002,
// _initialize_workers). Where a Stop comes between the two it sets a.halt, and starts nothing.
func (a *Agent) initialize(ctx context.Context) error {
	if err := a.rendezvous(ctx); err != nil {
		return err
	}
	for _, await := range []func(context.Context) error{a.awaitDevices, a.awaitReader} {
		if err := await(ctx); err != nil || a.halt != nil {
			return err
		}
	}
	if err := a.timed(events.StepStart, a.startWorkers); err != nil {
		return err
	}
	return a.setState(Healthy)
}

func (a *Agent) rendezvous(ctx context.Context) error {
	begun := time.Now()
	spec := a.opts.Spec
	a.emit(events.Event{Kind: events.KindWaiting})
	round, err := a.opts.Rendezvous.NextRendezvous(ctx, rdzv.Member{
		Role: spec.Role, LocalWorldSize: spec.LocalWorldSize,
		MasterAddr: spec.MasterAddr, MasterPort: spec.MasterPort,
		Failure: likeliest(a.failures),
	})
	if err == nil {
		a.enter(round)
	}
	a.emitStep(events.StepRendezvous, begun, err)
	if err != nil {
		return err
	}
	begun = time.Now()
	a.mu.Lock()
	a.group.assign(round)
	a.mu.Unlock()
	a.emitRound(begun)
	a.log.Info().Int("round", round.Number).Int("restart_count", a.restarts).
		Str("master_addr", round.MasterAddr).Int("master_port", round.MasterPort).
		Int("group_rank", round.Rank).Int("group_world_size", round.WorldSize).
		Int("global_base", round.Assignment.GlobalBase).Int("world_size", round.Assignment.GlobalWorldSize).
		Msg("rendezvous complete")
	return nil
}

// enter makes round the current one.
func (a *Agent) enter(round *rdzv.Round) {
	again := a.round != nil
	a.membership = again && round.Restarts == a.restarts
	if again {
		verdict := "restarting the worker group after a failure"
		if a.membership {
			verdict = "restarting the worker group after a membership change, which is not charged"
		}
		a.log.Warn().Int("round", round.Number).Int("nodes", round.WorldSize).Int("restart_count", round.Restarts).
			Int("max_restarts", a.opts.Spec.MaxRestarts).Msg(verdict)
	}
	a.round, a.restarts = round, round.Restarts
	a.halt, a.failures, a.done, a.left, a.failedAt, a.stuck = nil, nil, false, nil, time.Time{}, nil
	a.history.begin(round, time.Now())
}

// restart ends the round that is over for this node and enters the next (seed 002,
// _restart_workers).
func (a *Agent) restart(ctx context.Context, failed *procs.Exit) error {
	return a.timed(events.StepRestart, func() error {
		if err := a.endRound(ctx, failed); err != nil {
			return err
		}
		a.recordEnd()
		a.emitFailures()
		if err := a.setState(Stopped); err != nil {
			return err
		}
		if err := a.examine(ctx); err != nil {
			return err
		}
		a.devices = a.freeDevices(ctx, a.family)
		defer func() { a.endDeviceWait(a.devices) }()
		return a.timed(events.StepInitialize, func() error { return a.initialize(ctx) })
	})
}

// endRound tells of a failure, if there is one, stops the workers that are left, and keeps what failed.
func (a *Agent) endRound(ctx context.Context, failed *procs.Exit) error {
	p := a.processes
	if p == nil { // all have succeeded, and what they left behind is gone
		a.collectLeft()
		return nil
	}
	if ctx.Err() != nil { // then the others are to hear that this node leaves, and nothing of a failure
		return context.Cause(ctx)
	}
	var ended []procs.Exit
	if failed != nil {
		first := a.inquire(p, []procs.Exit{*failed}, question{})[0]
		ended = append(ended, *failed)
		if a.round.WorldSize > 1 { // once others have heard of it, they stop at once
			if ended = append(ended, a.hold(ctx, p, first)...); ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		a.opts.Rendezvous.Fail(first.forOthers(time.Now()))
		a.logFailure(*failed)
		if a.round.WorldSize == 1 {
			ended = append(ended, a.hold(ctx, p, first)...)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	a.emit(events.Event{Kind: events.KindStop, Why: a.stopReason(failed)})
	a.observe(p)
	var asked question
	if failed == nil {
		asked = a.questionOfHalt()
	}
	asked.stopBegan, asked.kernel = time.Now(), true
	err := a.stop(ctx, a.ladder(ctx))
	a.failures = a.collectFailures(p, ended, asked)
	if err != nil || failed == nil {
		return err
	}
	if a.failedAt = failed.At; a.round.WorldSize > 1 { // alone, it is time enough when nothing is left but to end
		return a.echoOf(ctx)
	}
	return nil
}

// stopReason is why the group is being stopped.
func (a *Agent) stopReason(failed *procs.Exit) string {
	switch {
	case failed != nil:
		return fmt.Sprintf("local rank %d: %v", failed.LocalRank, failed)
	case a.halt != nil:
		return a.halt.Why
	}
	return ""
}

// echoed is echoOf for a job that ends, on its only node, with a failure.
func (a *Agent) echoed(ctx context.Context, o rdzv.Outcome) error {
	if o.Ending != rdzv.EndFailed || a.failedAt.IsZero() || a.round.WorldSize > 1 {
		return nil
	}
	return a.echoOf(ctx)
}

// echoOf waits until the failure of this node cannot be the effect of a signal that the launcher got, too, and returns the context's cause if it
// is.
func (a *Agent) echoOf(ctx context.Context) error {
	err := awaitSignal(ctx, a.failedAt)
	if err != nil {
		a.failures = nil
		a.history.reopen()
	}
	return err
}

// succeed tells that all workers have exited with 0 and waits for those of the other nodes. Where a.halt is set
// afterwards, all have to run again.
func (a *Agent) succeed(ctx context.Context) error {
	if err := a.stop(ctx, a.ladder(ctx)); err != nil {
		return err
	}
	if a.halt != nil { // came meanwhile
		return nil
	}
	a.emit(events.Event{Kind: events.KindSucceeded})
	stop, err := a.opts.Rendezvous.Succeed(ctx)
	if err == nil && stop != nil {
		a.halt = stop
		a.log.Warn().Int("round", stop.Round).Str("why", stop.Why).Msg("the workers have succeeded, and must run again")
	}
	return err
}

// conclude makes the result of a job of which the rendezvous says how it has ended.
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
		r.State, r.Failures, r.Cause, r.Others = Failed, a.failures, rootCause(o.Cause, a.failures, now), fromOthers(o.Others, now)
	}
	if root, known := r.RootCause(); known {
		maps.DeleteFunc(r.Failures, func(_ int, f Failure) bool { return f.onlyAsCause() && !f.same(root) })
	}
	a.history.end(endOfOutcome(o), o.Text, nil)
	return r, a.setState(r.State)
}

// nothingStarted says why no worker was ever started here; empty where one was.
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

// finished tells whether err says that the job has come to a result, and which.
func finished(err error) (*rdzv.EndedError, bool) {
	if ended, ok := errors.AsType[*rdzv.EndedError](err); ok {
		return ended, ended.Outcome.Ending == rdzv.EndSucceeded || ended.Outcome.Ending == rdzv.EndFailed
	}
	return nil, false
}

func (a *Agent) logFailure(e procs.Exit) {
	if a.stuck != nil {
		a.log.Warn().Str("role", a.opts.Spec.Role).Int("local_rank", e.LocalRank).Int("pid", e.PID).
			Dur("after", a.opts.ErrorExitTimeout).Msg("a worker has written its error file and does not end: stopping the worker group")
		return
	}
	a.log.Warn().Str("role", a.opts.Spec.Role).Int("local_rank", e.LocalRank).Int("pid", e.PID).
		Stringer("exit", e).Msg("a worker has failed: stopping the worker group")
}
