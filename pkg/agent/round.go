package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

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

// endRound reports the failure, if there is one, to the rendezvous, stops the remaining workers, and sets a.failures.
func (a *Agent) endRound(ctx context.Context, failed *procs.Exit) error {
	p := a.processes
	if p == nil { // all workers have succeeded and were stopped
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
	if a.preempted != nil { // since the stop began: the failure is an effect of it, or the rendezvous knows of it
		a.summary = a.summarizeWorkers()
		a.emitRemainingExits(p)
		return err
	}
	a.failures, a.summary = a.collectFailures(p, ended, q), a.summarizeWorkers()
	if err != nil || failed == nil {
		return err
	}
	if a.failedAt = failed.At; a.round.WorldSize > 1 { // a single node checks at the end of the job
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
