package agent

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// maxEventText is the longest summary, reason or start error in an event, in bytes.
const maxEventText = 512

// emit completes e and passes it to the sink. Time is now unless it is set. Only the goroutine in Run calls emit.
func (a *Agent) emit(e events.Event) {
	if a.opts.Events == nil {
		return
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.RunID, e.Host = a.opts.Rendezvous.RunID(), a.hostname
	if a.round != nil {
		e.NodeRank, e.Round = new(a.round.Rank), new(a.round.Number)
	}
	e.Group = events.Group{
		Role: a.opts.Spec.Role, EntryPoint: a.opts.Spec.EntrypointName(), Backend: a.opts.Rendezvous.Backend(),
		Rank: a.groupRank, WorldSize: a.groupWorldSize,
		Restarts: a.restarts, Budget: a.opts.Spec.MaxRestarts, Uptime: time.Since(a.began),
	}
	a.opts.Events.Emit(e)
}

// timed runs a step and emits how long it took and its error.
func (a *Agent) timed(step string, f func() error) error {
	begun := time.Now()
	err := f()
	a.emitStep(step, begun, err)
	return err
}

// emitStep emits the end of a step. A step that ends with the result of the job has neither failed nor done its work,
// so it is no event.
func (a *Agent) emitStep(step string, begun time.Time, err error) {
	e := events.Event{Kind: events.KindStep, Step: step, Duration: time.Since(begun)}
	if err != nil {
		e.RawError = err.Error()
	}
	if _, ended := finished(err); !ended {
		a.emit(e)
	}
}

// emitRound emits the round that has begun. Its ranks were assigned in the time since begun.
func (a *Agent) emitRound(begun time.Time) {
	verdict := events.VerdictFirst
	switch {
	case a.membership:
		verdict = events.VerdictMembership
	case a.history.count > 1:
		verdict = events.VerdictRestart
	}
	a.emit(events.Event{
		Kind: events.KindRound, Verdict: verdict, Nodes: a.round.WorldSize, WorldSize: a.round.Assignment.GlobalWorldSize,
		Restarts: new(a.restarts), MaxRestarts: new(a.opts.Spec.MaxRestarts), Duration: time.Since(begun),
		LostNodes: a.round.LostNodes, SameFailures: a.round.SameFailures, Used: a.round.Used,
	})
}

// workerEvent returns an event about w.
func workerEvent(k events.Kind, w Worker) events.Event {
	return events.Event{
		Kind: k, Rank: new(w.GlobalRank), LocalRank: new(w.LocalRank), PID: w.PID, RoleRank: w.RoleRank,
		RoleWorldSize: w.RoleWorldSize,
	}
}

// emitExit emits an exit, with the time at which the launcher saw it.
func (a *Agent) emitExit(x procs.Exit) {
	e := workerEvent(events.KindWorkerEnded, a.workers[x.LocalRank])
	e.Time, e.PID, e.ExitCode, e.Stopped = x.At, x.PID, new(x.ShellCode()), x.Stopped
	if x.Signal != 0 {
		e.Signal = procs.SignalName(x.Signal)
	}
	if x.StartErr != nil {
		e.Error = report.Head(x.StartErr.Error(), maxEventText)
	}
	a.emit(e)
}

// emitRemainingExits takes and emits the exits that nobody has taken.
func (a *Agent) emitRemainingExits(p Processes) {
	for len(p.Exits()) > 0 {
		a.emitExit(<-p.Exits())
	}
}

// emitFailures emits why workers of this node have failed, the likeliest cause first.
func (a *Agent) emitFailures() {
	for _, f := range a.ownFailures() {
		a.emit(events.Event{
			Kind: events.KindFailure, Time: f.Time, Rank: new(f.GlobalRank), LocalRank: new(f.LocalRank), PID: f.PID,
			ExitCode: new(f.ShellCode()), Stopped: f.Stopped, Cause: string(f.Kind),
			Summary: report.Head(f.Summary, maxEventText),
		})
	}
}

// emitResults emits how each worker of the last round has ended, if this node was in a round. A worker that did not
// fail was stopped by the agent (torch's TERMINATED), unless all of this node's workers exited with 0.
func (a *Agent) emitResults(r RunResult) {
	if a.round == nil {
		return
	}
	for _, w := range a.workers {
		e := workerEvent(events.KindResult, w)
		f, failed := r.Failures[w.GlobalRank]
		switch {
		case failed:
			e.State, e.PythonCode, e.RawError = Failed.String(), new(f.PythonCode()), f.RawErrorFile
		case a.done:
			e.State = Succeeded.String()
		default:
			e.State = "TERMINATED"
		}
		a.emit(e)
	}
}

// emitRun emits how the run has ended. It took the given time until the job had its result, or until err.
func (a *Agent) emitRun(took time.Duration, err error) {
	e := events.Event{Kind: events.KindRun, State: a.state.String(), Duration: took}
	if err != nil {
		e.RawError = err.Error()
	}
	a.emit(e)
}
