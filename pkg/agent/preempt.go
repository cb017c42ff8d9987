package agent

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// A preemption reaches every agent as a Stop. Its workers learn of it from a file and by the signal. They get time to
// save and to exit by themselves; then they are stopped as ever. How they exit is no failure.

const (
	// handlerInterval is how often the agent looks whether workers that did not handle the signal, because they were
	// starting, do now. Nothing notifies of that.
	handlerInterval = 50 * time.Millisecond
	// giveUpAfter is how long after the workers of all nodes are gone the agent waits for the end of the job, if it is not
	// taken away before.
	giveUpAfter = 5 * time.Second
	// unhandledAfter is how long workers may take to handle the signal before the user learns that they do not.
	unhandledAfter = 5 * time.Second
)

// preemptRequest is the preemption that this node has asked for.
type preemptRequest struct {
	rdzv.Preemption
	at time.Time
}

// savePlan is how long workers may save, when the last of them must be dead, and when the agent waits no longer for the
// other nodes, from now.
type savePlan struct{ save, kill, giveUp time.Duration }

// SaveTime returns how long workers may save if they get grace for it, and shutdown to stop afterwards, on a node that
// is taken away after left; 0 if that is not known. The stop and the launcher's own end need some of that time.
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

// notePreemption records what a Stop says of a preemption.
func (a *Agent) notePreemption(stop *rdzv.Stop) {
	if stop != nil && stop.Preemption != nil && a.preempted == nil {
		a.preempted = stop.Preemption
		a.learn(*a.preempted)
	}
}

// haltAsRequested ends the round, of which all workers have exited with 0, if this node had asked for a preemption
// before: then they have saved, and have finished only if they say so. It reports whether it has.
func (a *Agent) haltAsRequested(ctx context.Context) bool {
	a.awaitRequest(ctx)
	if len(a.exitedUnasked()) == len(a.workers) {
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

// awaitRequest waits for a moment for the launcher's own copy of a signal that all processes of the node got: the
// workers may have ended because of theirs.
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

// exitedUnasked returns the local ranks that have exited with 0 before this node has asked for a preemption.
func (a *Agent) exitedUnasked() map[int]bool {
	exited, asked := map[int]bool{}, a.requested.Load()
	for _, x := range a.succeeded {
		if asked == nil || x.At.Before(asked.at.Add(-rdzv.SignalSpread)) {
			exited[x.LocalRank] = true
		}
	}
	return exited
}

// awaitSaved lets the workers save, until all of them have exited or there is no time left. It sets a.halt.
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
	had := a.announcePreemption(a.processes, stop, time.Now().Add(plan.save))
	over, again := time.NewTimer(plan.save), time.NewTicker(handlerInterval)
	defer over.Stop()
	defer again.Stop()
	unhandled := time.After(unhandledAfter)
	// Workers that were not started, because the round was over before, do not exit.
	running := len(a.processes.PIDs()) - (len(a.workers) - a.running)
	for running > 0 {
		select {
		case x := <-a.processes.Exits():
			if x.PID != 0 {
				running--
			}
			a.exitWhileSaving(x)
			continue
		case <-again.C:
			if a.processes.SignalHandlers(stop.Preemption.Signal, had) {
				again.Stop()
				unhandled = nil
			}
			continue
		case <-unhandled:
			a.logUnhandled(had, stop.Preemption.Signal)
			continue
		case sig := <-a.opts.Forward:
			a.processes.Signal(sig.(syscall.Signal))
			continue
		case <-a.asked:
			continue
		case <-a.timersExpired():
			a.takeTimers()
			continue
		case later := <-a.opts.Rendezvous.Stops():
			if later.Round != stop.Round {
				continue
			}
			stop = later.Merge(stop)
		case <-over.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		break
	}
	if a.halt = &stop; running > 0 {
		a.log.Warn().Int("workers", running).Int("round", stop.Round).
			Msg("workers that were to save still run, and are stopped: look whether their checkpoint is complete")
	}
	return nil
}

// logUnhandled logs how many workers have not got the signal.
func (a *Agent) logUnhandled(had map[int]bool, sig syscall.Signal) {
	without := 0
	for _, got := range had {
		if !got {
			without++
		}
	}
	a.log.Info().Int("workers", without).
		Msgf("some workers do not handle %s: they have only $%s", procs.SignalName(sig), PreemptFileEnv)
}

// exitWhileSaving records the exit of a worker that was to save.
func (a *Agent) exitWhileSaving(x procs.Exit) {
	a.emitExit(x)
	if x.Success() {
		return
	}
	a.log.Warn().Int("rank", a.workers[x.LocalRank].GlobalRank).Int("local_rank", x.LocalRank).Int("pid", x.PID).
		Stringer("exit", x).Msg("a worker that was to save has failed: look whether its checkpoint is complete")
}

// endPreempted stops the workers that have not exited by themselves.
func (a *Agent) endPreempted(ctx context.Context) error {
	p := a.processes
	if !p.HaveExited() {
		a.emit(events.Event{Kind: events.KindStop, Why: a.stopReason(nil)})
	}
	err := a.stop(ctx, a.stopPolicy(ctx))
	a.said = a.listen()
	a.emitRemainingExits(p)
	return err
}

// announcePreemption writes the file of a preemption and sends the signal to the workers that handle it. It returns
// those that have got it.
func (a *Agent) announcePreemption(p Processes, stop rdzv.Stop, saveBy time.Time) (had map[int]bool) {
	if dir := a.opts.WorkerDir; dir != "" {
		if err := writePreemptFile(preemptFile(dir, stop.Round), stop, saveBy); err != nil {
			a.log.Warn().Err(err).Msg("workers do not find " + PreemptFileEnv)
		}
	}
	had = map[int]bool{}
	p.SignalHandlers(stop.Preemption.Signal, had)
	return had
}

// preemptFile returns the path of the file that says that a round is preempted.
func preemptFile(dir string, round int) string {
	return filepath.Join(dir, strconv.Itoa(round)+".preempted")
}

// preemptNotice is the content of that file.
type preemptNotice struct {
	Signal string `json:"signal"`
	By     string `json:"by"`
	// SaveBy is when workers that still run get SIGTERM, and KillBy when the last of them is dead at the latest, in Unix
	// seconds.
	SaveBy float64 `json:"save_by"`
	KillBy float64 `json:"kill_by"`
}

// writePreemptFile writes the file of a preemption as a whole or not at all.
func writePreemptFile(path string, stop rdzv.Stop, saveBy time.Time) error {
	inSeconds := func(t time.Time) float64 { return float64(max(0, t.UnixMilli())) / 1000 }
	notice := preemptNotice{
		Signal: procs.SignalName(stop.Preemption.Signal), By: stop.Preemption.By,
		SaveBy: inSeconds(saveBy), KillBy: inSeconds(stop.KillBy),
	}
	data, err := json.Marshal(notice)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	_ = os.Remove(path + ".new") // a worker may have put a FIFO there
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	// A disk may be full. That the file is there says more than what it has.
	return errors.Join(err, f.Close(), os.Rename(path+".new", path))
}
