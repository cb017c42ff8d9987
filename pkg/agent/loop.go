package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// loop runs round after round until the rendezvous says that the job has ended. It is _invoke_run of torch 2.14
// (torch/distributed/elastic/agent/server/api.py) without polling. It has no budget of restarts: the rendezvous decides
// what follows from a failure.
func (a *Agent) loop(ctx context.Context) (RunResult, error) {
	role := a.opts.Spec.Role
	a.log.Info().Str("role", role).Str("entrypoint", a.opts.Spec.EntrypointName()).Msg("starting workers")
	err := a.timed(events.StepInitialize, func() error { return a.initialize(ctx) })
	for err == nil {
		var failed *procs.Exit
		if failed, err = a.watch(ctx); err != nil {
			break
		}
		a.emit(events.Event{Kind: events.KindState, State: a.state.String()})
		if a.state == Succeeded && !a.haltIfRequested(ctx) {
			if err = a.succeed(ctx); err == nil && a.halt == nil {
				a.history.end(report.EndSuccess, "", nil)
				return RunResult{State: Succeeded, Restarts: a.restarts, OthersUnknown: a.alone}, nil
			}
		}
		if err == nil {
			err = a.restart(ctx, failed)
		}
		if err != nil && a.successStands(ctx, err) {
			return RunResult{State: Succeeded, Restarts: a.restarts, OthersUnknown: true}, a.setState(Succeeded)
		}
	}
	if end, ok := finished(err); ok {
		if err = a.duplicateSignalAtEnd(ctx, end.Outcome); err == nil {
			return a.conclude(end)
		}
	}
	return RunResult{}, err
}

// watch blocks until the round is over for this node. That is when a worker has failed, whose exit it returns; when all
// workers have succeeded; or when the rendezvous wants them stopped (a.halt).
func (a *Agent) watch(ctx context.Context) (failed *procs.Exit, err error) {
	if a.halt != nil { // the round was over before workers were started
		return nil, nil
	}
	stopSampling := a.sampleUsage(ctx)
	defer stopSampling()
	stopWatching := a.watchLiveness(ctx)
	defer stopWatching()
	firstStep, endSteps := a.watchSteps(ctx)
	defer endSteps()
	deadline := a.newExitDeadline()
	defer deadline.close(&a.closing)
	var others progress
	defer others.end()
	sleeps := a.newSleepWatch()
	defer sleeps.stop()
	for {
		select {
		case x := <-a.processes.Exits():
			a.emitExit(x)
			if !x.Success() {
				return &x, a.setState(Failed)
			}
			a.succeeded = append(a.succeeded, x)
			deadline.cancel(x.LocalRank)
			if a.running--; a.running == 0 {
				a.done = true
				return nil, a.setState(Succeeded)
			}
			others.begin(ctx, &a.opts, false)
		case <-deadline.begin:
			a.watchErrorFiles(deadline)
		case path := <-deadline.written:
			deadline.expect(path, time.Now())
		case <-deadline.expired:
			if len(a.processes.Exits()) > 0 { // the worker may have just ended
				deadline.reset()
				continue
			}
			x := deadline.expire(a.processes.PIDs())
			a.hung = &hungWorker{localRank: x.LocalRank, after: deadline.timeout, where: a.showHung(ctx, x.LocalRank)}
			return &x, a.setState(Failed)
		case step := <-firstStep:
			a.emit(events.Event{Kind: events.KindFirstStep, Time: step.At, TrainingStep: &step.Step})
		case <-a.pings:
		case <-sleeps.tick():
			if x := sleeps.look(a.processes.PIDs()); x != nil && len(a.processes.Exits()) == 0 {
				a.hung = &hungWorker{localRank: x.LocalRank, asleep: true, after: sleeps.timeout}
				return x, a.setState(Failed)
			}
		case <-a.timersExpired():
			a.takeTimers()
		case stop := <-a.opts.Rendezvous.Stops():
			if stop.Round != a.round.Number { // its workers are gone
				continue
			}
			if stop.Silence && a.processes.HaveExited() { // their exits decide, and Succeed repeats a Stop that counts
				continue
			}
			if stop.Preemption != nil {
				return nil, a.awaitSaved(ctx, stop)
			}
			a.setHalt(stop)
			return nil, nil
		case sig := <-a.opts.Forward:
			a.processes.Signal(sig.(syscall.Signal))
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// setHalt records that a Stop ends the round.
func (a *Agent) setHalt(stop rdzv.Stop) {
	a.halt = &stop
	a.log.Warn().Int("round", stop.Round).Str("why", stop.Why).Msg("stopping the worker group")
}

// initialize runs a rendezvous and starts the workers, like _initialize_workers of torch's SimpleElasticAgent. If a
// Stop arrives between the two, it sets a.halt and starts nothing.
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
	ctx, cancel := a.untilPreempted(ctx)
	defer cancel()
	if a.preempted == nil { // else no round follows
		a.emit(events.Event{Kind: events.KindWaiting})
	}
	round, err := a.opts.Rendezvous.NextRendezvous(ctx, rdzv.Member{
		Role: spec.Role, LocalWorldSize: spec.LocalWorldSize,
		MasterAddr: spec.MasterAddr, MasterPort: spec.MasterPort,
		Failure: likeliest(a.failures), Preempted: a.preempted != nil,
		Finished: a.summary.finished, Stop: a.summary.stop, ExcludeNode: a.summary.excludeNode, Steps: a.summary.steps,
	})
	if err == nil {
		a.enter(round)
	}
	a.emitStep(events.StepRendezvous, begun, err)
	if err != nil {
		return err
	}
	begun = time.Now()
	a.groupRank, a.groupWorldSize = round.Rank, round.WorldSize
	a.workers = assignWorkers(round.Assignment, spec.LocalWorldSize)
	a.showGroup()
	a.emitRound(begun)
	a.log.Info().Int("round", round.Number).Int("restart_count", a.restarts).
		Str("master_addr", round.MasterAddr).Int("master_port", round.MasterPort).
		Int("group_rank", round.Rank).Int("group_world_size", round.WorldSize).
		Str("role", spec.Role).Ints("local_ranks", consecutive(0, spec.LocalWorldSize)).
		Ints("global_ranks", consecutive(round.Assignment.GlobalBase, spec.LocalWorldSize)).
		Ints("role_ranks", consecutive(round.Assignment.RoleBase, spec.LocalWorldSize)).
		Int("world_size", round.Assignment.GlobalWorldSize).
		Int("role_world_size", round.Assignment.RoleWorldSize).
		Msg("rendezvous complete")
	return nil
}

// consecutive returns n numbers that begin with first.
func consecutive(first, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = first + i
	}
	return out
}

// enter makes round the current one.
func (a *Agent) enter(round *rdzv.Round) {
	again := a.round != nil
	a.roundState = roundState{membership: again && round.Restarts == a.restarts}
	if again {
		verdict := "restarting the worker group after a failure"
		if a.membership {
			verdict = "restarting the worker group after a membership change, which is not charged"
		}
		a.log.Warn().Int("round", round.Number).Int("nodes", round.WorldSize).Int("restart_count", round.Restarts).
			Int("max_restarts", a.opts.Spec.MaxRestarts).Msg(verdict)
	}
	a.round, a.restarts, a.watched = round, round.Restarts, nil
	a.history.begin(round, time.Now())
}

// restart ends the round that is over for this node and enters the next one, like _restart_workers of torch's
// SimpleElasticAgent.
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
		if err := a.checkFitness(ctx); err != nil {
			return err
		}
		a.devices = a.freeDevices(ctx, a.tree)
		defer func() { a.endDeviceWait(a.devices) }()
		return a.timed(events.StepInitialize, func() error { return a.initialize(ctx) })
	})
}

// endRound reports the failure to the rendezvous, if there is one, stops the remaining workers, and keeps the failures.
func (a *Agent) endRound(ctx context.Context, failed *procs.Exit) error {
	p := a.processes
	if p == nil { // all workers have succeeded, and what they left behind is gone
		a.collectSucceeded()
		a.notePreemption(a.halt)
		a.summary = a.summarizeWorkers()
		return nil
	}
	if ctx.Err() != nil { // the other nodes must hear that this node leaves, and nothing about a failure
		return context.Cause(ctx)
	}
	if a.preempted != nil {
		return a.endPreempted(ctx)
	}
	var ended []procs.Exit
	if failed != nil {
		var err error
		if ended, err = a.reportFailure(ctx, p, *failed); err != nil {
			return err
		}
	}
	a.emit(events.Event{Kind: events.KindStop, Why: a.stopReason(failed)})
	a.recordStates(p)
	var q query
	if failed == nil {
		q = a.queryAfterHalt()
	}
	q.stopBegan, q.kernel = time.Now(), true
	err := a.stop(ctx, a.stopPolicy(ctx))
	if a.preempted != nil { // as the stop has learned: the failure follows from it, or the rendezvous knows of it
		a.summary = a.summarizeWorkers()
		a.emitRemainingExits(p)
		return err
	}
	a.failures, a.summary = a.collectFailures(p, ended, q), a.summarizeWorkers()
	if err != nil || failed == nil {
		return err
	}
	if a.failedAt = failed.At; a.round.WorldSize > 1 { // a single node checks when nothing is left but to end
		return a.checkDuplicateSignal(ctx)
	}
	return nil
}

// reportFailure sends the first failure to the rendezvous and delays the stop if that may show who is to blame. It
// returns the exits that were received so far, failed among them.
func (a *Agent) reportFailure(ctx context.Context, p Processes, failed procs.Exit) ([]procs.Exit, error) {
	first := a.examineExits(p, []procs.Exit{failed}, query{})[0]
	ended := []procs.Exit{failed}
	if a.round.WorldSize > 1 { // as soon as the other nodes know, they stop
		if ended = append(ended, a.deferStop(ctx, p, first)...); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	a.opts.Rendezvous.Fail(outgoing(first, time.Now()))
	a.logFailure(failed, first.GlobalRank)
	if a.round.WorldSize == 1 {
		ended = append(ended, a.deferStop(ctx, p, first)...)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return ended, nil
}

// stopReason says why the group is being stopped.
func (a *Agent) stopReason(failed *procs.Exit) string {
	switch {
	case failed != nil:
		return fmt.Sprintf("local rank %d: %v", failed.LocalRank, failed)
	case a.halt != nil:
		return a.halt.Why
	}
	return ""
}

// succeed reports that all workers have exited with 0, and waits for the other nodes. If a.halt is set afterwards, all
// workers must run again.
func (a *Agent) succeed(ctx context.Context) error {
	if err := a.stop(ctx, a.stopPolicy(ctx)); err != nil {
		return err
	}
	if a.halt != nil && !a.halt.Silence { // it arrived during the stop
		return nil
	}
	a.halt = nil
	a.reportSteps()
	a.emit(events.Event{Kind: events.KindSucceeded})
	stop, err := a.exitBarrier(ctx)
	if err == nil && stop != nil {
		a.halt = stop
		if stop.Preemption != nil { // no round follows
			return nil
		}
		a.log.Warn().Int("round", stop.Round).Str("why", stop.Why).
			Msg("the workers have succeeded, but the round is over: they run again if the job is restarted")
	}
	return err
}

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

// logFailure logs the exit of the worker with the given global rank.
func (a *Agent) logFailure(x procs.Exit, rank int) {
	e := a.log.Warn().Str("role", a.opts.Spec.Role).Int("rank", rank).Int("local_rank", x.LocalRank).
		Int("pid", x.PID)
	switch h := a.hung; {
	case h == nil:
		e.Stringer("exit", x).Msg("a worker has failed: stopping the worker group")
	case h.asleep:
		e.Str("after", seconds.Format(h.after)).
			Msg("a worker is in an uninterruptible sleep in the kernel: stopping the worker group, without a restart")
	default:
		if h.where != "" {
			e.Str("where", h.where)
		}
		e.Str("after", seconds.Format(h.after)).
			Msg("a worker has written its error file and does not end: stopping the worker group")
	}
}
