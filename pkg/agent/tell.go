package agent

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// maxTold is how much of a summary records have, in bytes.
const maxTold = 512

// tell passes on a record of something that has just happened, unless its time is set.
func (a *Agent) tell(r events.Record) {
	if a.opts.Tell == nil {
		return
	}
	if r.Time.IsZero() {
		r.Time = time.Now()
	}
	r.RunID, r.Host = a.opts.Rendezvous.RunID(), a.hostname
	if a.round != nil {
		r.NodeRank, r.Round = new(a.round.Rank), new(a.round.Number)
	}
	a.opts.Tell(r)
}

// tellRound tells of the round that has just begun.
func (a *Agent) tellRound() {
	verdict := events.VerdictFirst
	switch {
	case a.membership:
		verdict = events.VerdictMembership
	case a.history.count > 1:
		verdict = events.VerdictRestart
	}
	a.tell(events.Record{
		Kind: events.KindRound, Verdict: verdict, Nodes: a.round.WorldSize, WorldSize: a.round.Assignment.GlobalWorldSize,
		Restarts: new(a.restarts), MaxRestarts: new(a.opts.Spec.MaxRestarts),
	})
}

func (a *Agent) tellStarted(w Worker) {
	if w.PID == 0 { // it could not be, which its end tells
		return
	}
	a.tell(events.Record{Kind: events.KindWorkerStarted, Rank: new(w.GlobalRank), LocalRank: new(w.LocalRank), PID: w.PID})
}

// tellEnded tells of an exit, at the time when the launcher saw it.
func (a *Agent) tellEnded(e procs.Exit) {
	r := events.Record{
		Kind: events.KindWorkerEnded, Time: e.At, Rank: new(a.group.Workers[e.LocalRank].GlobalRank), LocalRank: new(e.LocalRank), PID: e.PID,
		ExitCode: new(e.ShellCode()), Stopped: e.Stopped,
	}
	if e.Signal != 0 {
		r.Signal = procs.SignalName(e.Signal)
	}
	if e.StartErr != nil {
		r.Error = report.Begin(e.StartErr.Error(), maxTold)
	}
	a.tell(r)
}

// tellRest tells of the exits that nobody has taken.
func (a *Agent) tellRest(p Processes) {
	for len(p.Exits()) > 0 {
		a.tellEnded(<-p.Exits())
	}
}

// tellFailures tells why workers of this node have failed, the likeliest cause first.
func (a *Agent) tellFailures() {
	for _, f := range a.ownFailures() {
		a.tell(events.Record{
			Kind: events.KindFailure, Time: f.Time, Rank: new(f.GlobalRank), LocalRank: new(f.LocalRank), PID: f.Exit.PID,
			ExitCode: new(f.Exit.ShellCode()), Stopped: f.Exit.Stopped, Cause: string(f.Kind()), Summary: report.Begin(f.Summary(), maxTold),
		})
	}
}

// LastLines returns what each worker of the group that was started last wrote to its stderr last, by local rank, as far as the launcher
// sees it. It may be called at any time, and takes as long as a disk that it has to look at.
func (a *Agent) LastLines() map[int]string {
	a.mu.Lock()
	p, workers := a.shown, len(a.group.Workers)
	a.mu.Unlock()
	if p == nil {
		return nil
	}
	last := make(map[int]string)
	for rank := range workers {
		if tail := trimBlank(p.Tail(rank)); len(tail) > 0 {
			last[rank] = tail[len(tail)-1]
		}
	}
	return last
}
