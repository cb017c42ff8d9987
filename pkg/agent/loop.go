package agent

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// exitBarrierKey is where agents meet after success (seed 002,
// _TERMINAL_STATE_SYNC_ID).
const exitBarrierKey = "torchelastic/agent/terminal_state"

// leftoverGrace is how long processes that outlive their worker have to obey a
// signal when the job goes on or has ended by itself.
const leftoverGrace = 2 * time.Second

// loop is seed 002's run loop, without its polling.
func (a *Agent) loop(ctx context.Context) (RunResult, error) {
	role := a.opts.Spec.Role
	a.log.Info().Str("role", role).Str("entrypoint", a.opts.Spec.EntrypointName()).Msg("starting workers")
	err := a.metrics.Prof("initialize_workers", func() error { return a.initialize(ctx) })
	for err == nil {
		var seen observation
		if seen, err = a.watch(ctx); err != nil {
			break
		}
		a.putState()
		switch decide(a.state(), a.remaining, seen.waiting) {
		case finish:
			return a.succeed(ctx)
		case giveUp:
			return a.fail(ctx, seen)
		case restartCharged:
			a.logFailure(seen.failed)
			a.remaining--
			a.membership = false
			err = a.restart(ctx)
		case restartMembership:
			a.log.Warn().Int("nodes_waiting", seen.waiting).Msg("nodes are waiting: restarting the worker group, which is not charged")
			a.membership = true
			err = a.restart(ctx)
		case keepWatching:
		case abort:
			err = fmt.Errorf("worker group is in state %v", a.state())
		}
	}
	return RunResult{}, err
}

// observation is what one watch ended with.
type observation struct {
	failed  procs.Exit // the first failure, where the group failed
	waiting int        // nodes that wait to be let in
}

// watch blocks until the group has changed state or nodes are waiting.
func (a *Agent) watch(ctx context.Context) (observation, error) {
	stopSampling := a.sampleUsage()
	defer stopSampling()
	for {
		select {
		case exit := <-a.processes.Exits():
			if !exit.Success() {
				return observation{failed: exit}, a.setState(Failed)
			}
			if a.running--; a.running == 0 {
				return observation{}, a.setState(Succeeded)
			}
		case <-a.opts.Rendezvous.Changed():
			if n := a.opts.Rendezvous.NumNodesWaiting(); n > 0 {
				return observation{waiting: n}, nil
			}
		case sig := <-a.opts.Forward:
			a.processes.Signal(sig.(syscall.Signal))
		case <-ctx.Done():
			return observation{}, context.Cause(ctx)
		}
	}
}

// initialize runs a rendezvous and starts the workers (seed 002,
// _initialize_workers).
func (a *Agent) initialize(ctx context.Context) error {
	if err := a.metrics.Prof("rendezvous", func() error { return a.rendezvous(ctx) }); err != nil {
		return err
	}
	if err := a.metrics.Prof("start_workers", a.startWorkers); err != nil {
		return err
	}
	return a.setState(Healthy)
}

func (a *Agent) rendezvous(ctx context.Context) error {
	begun := time.Now()
	spec := a.opts.Spec
	round, err := a.opts.Rendezvous.NextRendezvous(ctx, rdzv.Member{
		Role: spec.Role, LocalWorldSize: spec.LocalWorldSize,
		MasterAddr: spec.MasterAddr, MasterPort: spec.MasterPort,
	})
	if err != nil {
		return err
	}
	a.round = round
	a.emitStep("RENDEZVOUS", time.Since(begun))
	return a.metrics.Prof("assign_worker_ranks", func() error {
		begun := time.Now()
		a.mu.Lock()
		a.group.assign(round)
		a.mu.Unlock()
		a.emitStep("ASSIGN_WORKER_RANKS", time.Since(begun))
		a.log.Info().Int("round", round.Number).Int("restart_count", a.restarts()).
			Str("master_addr", round.MasterAddr).Int("master_port", round.MasterPort).
			Int("group_rank", round.Rank).Int("group_world_size", round.WorldSize).
			Int("global_base", round.Assignment.GlobalBase).Int("world_size", round.Assignment.GlobalWorldSize).
			Msg("rendezvous complete")
		return nil
	})
}

// restart stops the workers and starts them again in a new round (seed 002,
// _restart_workers).
func (a *Agent) restart(ctx context.Context) error {
	return a.metrics.Prof("restart_workers", func() error {
		if err := a.stop(ctx, a.ladder(ctx)); err != nil {
			return err
		}
		if err := a.setState(Stopped); err != nil {
			return err
		}
		return a.metrics.Prof("initialize_workers", func() error { return a.initialize(ctx) })
	})
}

// succeed ends a group whose workers have all exited with 0.
func (a *Agent) succeed(ctx context.Context) (RunResult, error) {
	if err := a.stop(ctx, a.ladder(ctx)); err != nil {
		return RunResult{}, err
	}
	if err := a.exitBarrier(ctx); err != nil {
		return RunResult{}, err
	}
	return RunResult{State: Succeeded, Restarts: a.restarts()}, nil
}

// exitBarrier keeps the agent until all others have finished too. Only a signal
// makes it fail; a time-out does not unmake the success (seed 002).
func (a *Agent) exitBarrier(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, a.opts.ExitBarrierTimeout)
	defer cancel()
	err := kvstore.Barrier(bounded, a.round.Store, kvstore.BarrierOptions{
		WorldSize: a.round.WorldSize, Prefix: exitBarrierKey, Timeout: a.opts.ExitBarrierTimeout,
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		a.log.Warn().Err(err).Dur("timeout", a.opts.ExitBarrierTimeout).Msg("waiting for other nodes at the exit barrier")
	}
	return nil
}

// fail ends a group that failed for the last time.
func (a *Agent) fail(ctx context.Context, seen observation) (RunResult, error) {
	processes, began := a.processes, time.Now()
	ladder := a.ladder(ctx)
	if err := a.stop(ctx, ladder); err != nil {
		if _, stuck := errors.AsType[*procs.StuckError](err); !stuck {
			return RunResult{}, err
		}
		a.log.Error().Err(err).Msg("the job has failed, and some of it does not end")
	}
	if err := awaitSignal(ctx, seen.failed.At); err != nil {
		return RunResult{}, err
	}
	return RunResult{
		State:    Failed,
		Failures: a.collectFailures(processes, seen.failed, ladder.Signal, began),
		Restarts: a.restarts(),
	}, nil
}

// awaitSignal tells a failure from the effect of a signal that everybody in a
// control group got, workers first: then the launcher's own copy is due any moment. It
// returns the context's cause if that is so.
func awaitSignal(ctx context.Context, failed time.Time) error {
	timer := time.NewTimer(50 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		if time.Since(failed) < time.Second {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (a *Agent) logFailure(e procs.Exit) {
	a.log.Warn().Str("role", a.opts.Spec.Role).Int("local_rank", e.LocalRank).Int("pid", e.PID).
		Stringer("exit", e).Int("attempts_left", a.remaining).Int("max_restarts", a.opts.Spec.MaxRestarts).
		Msg("worker group failed: restarting it")
}
