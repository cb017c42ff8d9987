package agent

import (
	"context"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// A preemption reaches every agent as a Stop. The agent notifies its workers by a file and by the signal, and gives
// them time to save and exit. Then it stops the rest as usual. No exit of a preempted worker is a failure.

const (
	// handlerInterval is the time between two attempts to signal workers that had no handler yet, because they were
	// starting. The kernel does not notify anybody of a new handler.
	handlerInterval = 50 * time.Millisecond
	// giveUpAfter is how long the agent waits for the end of the job once the workers of all nodes are gone, if its node
	// exists that long.
	giveUpAfter = 5 * time.Second
	// unhandledAfter is how long the agent waits for handlers before it logs that some workers have none.
	unhandledAfter = 5 * time.Second
)

// preemptState is what this node knows about the preemption of the job.
type preemptState struct {
	preempted    *rdzv.Preemption               // the one that ended the last round; nil for none. It belongs to Run.
	requested    atomic.Pointer[preemptRequest] // by this node; nil for none
	hasRequested chan struct{}                  // closed when requested is set
	learned      chan rdzv.Preemption           // holds the first preemption that this node learned of
	giveUp       chan struct{}                  // closed when the agent stops waiting for the end of a preempted job
}

func newPreemptState() preemptState {
	return preemptState{
		hasRequested: make(chan struct{}), learned: make(chan rdzv.Preemption, 1), giveUp: make(chan struct{}),
	}
}

// preemptRequest is the preemption that this node has requested.
type preemptRequest struct {
	rdzv.Preemption
	at time.Time
}

// savePlan says, in times from now, how long workers may save, when the last of them must be dead, and when the agent
// stops waiting for the other nodes.
type savePlan struct{ save, kill, giveUp time.Duration }

// SaveTime returns how long workers may save. They get at most grace. A node that is taken away after left needs some
// of that time to stop them, up to shutdown, and to end itself. A left of 0 means that the time is not known.
func SaveTime(grace, shutdown, left time.Duration) time.Duration {
	return planSave(grace, shutdown, left).save
}

func planSave(grace, shutdown, left time.Duration) savePlan {
	if left <= 0 {
		return savePlan{grace, grace + shutdown, grace + shutdown + giveUpAfter}
	}
	reserve := min(2*time.Second, left/5)
	save, kill := min(grace, left-reserve-min(shutdown, left/5)), min(grace+shutdown, left-reserve)
	return savePlan{save, kill, min(kill+giveUpAfter, left-reserve/2)}
}

// plan returns the plan of this node for a preemption.
func (a *Agent) plan(p rdzv.Preemption) savePlan {
	return planSave(p.Grace, a.opts.ShutdownTimeout, a.timeLeft(p.Left))
}

// timeLeft returns the shorter of left and the time to the deadline; 0 stands for an unknown time. A deadline that has
// passed was wrong, or was extended.
func (a *Agent) timeLeft(left time.Duration) time.Duration {
	own := time.Until(a.opts.Deadline)
	if a.opts.Deadline.IsZero() || own <= 0 || left > 0 && left < own {
		return left
	}
	return own
}

// followPreemption passes this node's preemption on to the rendezvous, and limits how long the agent waits for the end
// of a preempted job, until stop is called. It outlives ctx.
func (a *Agent) followPreemption(ctx context.Context) (stop func()) {
	return inBackground(context.WithoutCancel(ctx), func(ctx context.Context) {
		var limit <-chan time.Time
		for {
			select {
			case p := <-a.opts.Preempt:
				if a.requested.Load() != nil {
					a.log.Warn().Msg(p.By + ": the job is being preempted already")
					continue
				}
				p.Grace, p.Left = a.opts.PreemptGrace, a.timeLeft(a.opts.PreemptNotice)
				a.requested.Store(&preemptRequest{p, time.Now()})
				close(a.hasRequested)
				a.learn(p)
				a.opts.Rendezvous.Preempt(p)
			case p := <-a.learned:
				if limit == nil {
					limit = time.After(a.plan(p).giveUp)
				}
			case <-limit:
				close(a.giveUp)
				return
			case <-ctx.Done():
				return
			}
		}
	})
}

// learn records, for followPreemption, that the job is preempted.
func (a *Agent) learn(p rdzv.Preemption) {
	select {
	case a.learned <- p:
	default: // it has the first one
	}
}

// untilPreempted returns a context for the wait for a round. It ends when the agent has waited too long for the end of
// a preempted job, for example because it has not reached the rendezvous.
func (a *Agent) untilPreempted(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := inBackground(ctx, func(ctx context.Context) {
		select {
		case <-a.giveUp:
			cancel(&rdzv.EndedError{Outcome: rdzv.Outcome{
				Ending: rdzv.EndPreempted, Text: "the other nodes have not confirmed it in time",
			}})
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// isPreempted reports whether the job is preempted, as far as this node knows.
func (a *Agent) isPreempted() bool { return a.preempted != nil || a.requested.Load() != nil }

// notePreemption records the preemption that a Stop announces, if it announces one.
func (a *Agent) notePreemption(stop *rdzv.Stop) {
	if stop != nil && stop.Preemption != nil && a.preempted == nil {
		a.preempted = stop.Preemption
		a.learn(*a.preempted)
	}
}

// haltIfRequested halts a round whose workers have all exited with 0, if some of them exited after this node had
// requested a preemption: these have saved, and have finished only if their control files say so. It reports whether it
// halted the round.
func (a *Agent) haltIfRequested(ctx context.Context) bool {
	a.awaitRequest(ctx)
	if len(a.exitedBeforeRequest()) == len(a.workers) {
		return false
	}
	a.done = false
	if p := a.requested.Load(); a.halt == nil {
		a.setHalt(rdzv.Stop{
			Round: a.round.Number, Why: "the job is preempted: " + p.By, Preemption: &p.Preemption,
		})
	}
	a.notePreemption(a.halt)
	return true
}

// awaitRequest waits for a moment for the launcher's own copy of a signal that all processes of the node got. The
// workers may have exited because of their copies.
func (a *Agent) awaitRequest(ctx context.Context) {
	if a.opts.Preempt == nil || a.requested.Load() != nil {
		return
	}
	timer := time.NewTimer(duplicateSignalWait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.hasRequested:
	case <-ctx.Done():
	}
}

// exitedBeforeRequest returns the local ranks that exited with 0 before this node requested a preemption.
func (a *Agent) exitedBeforeRequest() map[int]bool {
	exited, request := map[int]bool{}, a.requested.Load()
	for _, x := range a.succeeded {
		if request == nil || x.At.Before(request.at.Add(-rdzv.SignalSpread)) {
			exited[x.LocalRank] = true
		}
	}
	return exited
}

// awaitSaved notifies the workers of a preemption and waits until all of them have exited or their time is over. It
// sets a.halt.
func (a *Agent) awaitSaved(ctx context.Context, stop rdzv.Stop) error {
	a.emit(events.Event{Kind: events.KindPreempted, Why: stop.Why})
	a.notePreemption(&stop)
	plan := a.plan(*stop.Preemption)
	if kill := time.Now().Add(plan.kill); stop.KillBy.IsZero() || kill.Before(stop.KillBy) {
		stop.KillBy = kill
	}
	plan.save = min(plan.save, max(0, time.Until(stop.KillBy)))
	a.log.Warn().Int("round", stop.Round).Str("why", stop.Why).
		Msgf("preempted: the workers have %s to save and exit", seconds.Format(plan.save))
	signaled := a.announcePreemption(a.processes, stop, time.Now().Add(plan.save))
	running, err := a.awaitSavingWorkers(ctx, &stop, signaled, plan.save)
	if err != nil {
		return err
	}
	if a.halt = &stop; running > 0 {
		a.log.Warn().Int("workers", running).Int("round", stop.Round).
			Msg("stopping the workers that are still saving; check whether the checkpoint is complete")
	}
	return nil
}

// awaitSavingWorkers waits until all workers have exited, their time is over, or another Stop of the round arrives,
// which it merges into stop. It returns how many workers still run. It signals workers that install a handler late.
func (a *Agent) awaitSavingWorkers(
	ctx context.Context, stop *rdzv.Stop, signaled map[int]bool, save time.Duration,
) (running int, err error) {
	over, retry := time.NewTimer(save), time.NewTicker(handlerInterval)
	defer over.Stop()
	defer retry.Stop()
	unhandled := time.After(unhandledAfter)
	// Workers that were not started, because the round was over by then, do not exit.
	running = len(a.processes.PIDs()) - (len(a.workers) - a.running)
	for running > 0 {
		select {
		case x := <-a.processes.Exits():
			if x.PID != 0 {
				running--
			}
			a.exitWhileSaving(x)
		case <-retry.C:
			if a.processes.SignalHandlers(stop.Preemption.Signal, signaled) {
				retry.Stop()
				unhandled = nil
			}
		case <-unhandled:
			a.logUnhandled(signaled, stop.Preemption.Signal)
		case sig := <-a.opts.Forward:
			a.processes.Signal(sig.(syscall.Signal))
		case <-a.pings:
		case <-a.timersExpired():
			a.takeTimers()
		case later := <-a.opts.Rendezvous.Stops():
			if later.Round == stop.Round {
				*stop = later.Merge(*stop)
				return running, nil
			}
		case <-over.C:
			return running, nil
		case <-ctx.Done():
			return running, context.Cause(ctx)
		}
	}
	return 0, nil
}

// logUnhandled logs how many workers have not got the signal.
func (a *Agent) logUnhandled(signaled map[int]bool, sig syscall.Signal) {
	without := 0
	for _, got := range signaled {
		if !got {
			without++
		}
	}
	a.log.Info().Int("workers", without).
		Msgf("some workers have no handler for %s: only $%s notifies them", procs.SignalName(sig), PreemptFileEnv)
}

// exitWhileSaving emits the exit of a preempted worker and logs a failure.
func (a *Agent) exitWhileSaving(x procs.Exit) {
	a.emitExit(x)
	if x.Success() {
		return
	}
	a.log.Warn().Int("rank", a.workers[x.LocalRank].GlobalRank).Int("local_rank", x.LocalRank).Int("pid", x.PID).
		Stringer("exit", x).Msg("a worker has failed while it was saving: check whether the checkpoint is complete")
}

// endPreempted ends a preempted round: it stops the workers that have not exited by themselves.
func (a *Agent) endPreempted(ctx context.Context) error {
	p := a.processes
	if !p.HaveExited() {
		a.emit(events.Event{Kind: events.KindStop, Why: a.stopReason(nil)})
	}
	err := a.stop(ctx, a.stopPolicy(ctx))
	a.summary = a.summarizeWorkers()
	a.emitRemainingExits(p)
	return err
}
