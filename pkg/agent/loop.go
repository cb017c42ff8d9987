package agent

import (
	"context"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/events"
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

// watch blocks until the round is over for this node: a worker has failed, and watch returns its exit; all workers have
// succeeded; or the rendezvous wants them stopped (a.halt).
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
			if stop.Silence && a.processes.HaveExited() { // the exits decide; Succeed repeats a Stop that still counts
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
