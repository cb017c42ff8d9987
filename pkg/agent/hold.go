package agent

import (
	"context"
	"maps"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// holdBound is how long the stop of the workers that still run is put off at most.
const holdBound = time.Second

// hold puts off the stop while nobody has shown a fault of its own, and returns the exits that it took meanwhile. first says of the failure that began it
// that it only lost its peer. The peer may be at work in its "finally" or its exit handlers when its victims have gone already, and a stop would end it before it has
// said a word. It may where no other node has a say: elsewhere all are stopped at once, and wait for each other before they go on. Where it has waited for a peer in
// vain, on whatever node, others are let run until they have, too: who is silent then is the one that they waited for.
func (a *Agent) hold(ctx context.Context, p Processes, first Failure) (ended []procs.Exit) {
	alone := a.round.WorldSize == 1
	if a.stuck != nil || first.Kind().Grade() != evidence.GradePeer || !alone && !first.waited() {
		return nil
	}
	told := make(chan struct{}, 1)
	a.scene.tell(told)
	defer a.scene.tell(nil)
	files := a.newWatch()
	defer files.close(&a.closing)
	bound := time.NewTimer(holdBound)
	defer bound.Stop()
	running := maps.Clone(p.PIDs())
	for gone := first.Exit; ; gone = ended[len(ended)-1] {
		if delete(running, gone.LocalRank); alone && a.running-len(ended) <= 1 {
			return ended
		}
		e, came := a.awaitWord(ctx, p, running, awaited{told, files.written(), bound.C})
		if !came {
			return ended
		}
		ended = append(ended, e)
		if !e.Success() && a.inquire(p, []procs.Exit{e}, question{})[0].Kind().Grade() != evidence.GradePeer {
			return ended
		}
	}
}

// awaited is what a hold waits for.
type awaited struct {
	told  <-chan struct{} // a stderr has something new
	files <-chan string   // an error file was written
	bound <-chan time.Time
}

// awaitWord waits for the next exit; false says that there is no more to wait for.
func (a *Agent) awaitWord(ctx context.Context, p Processes, running map[int]int, news awaited) (procs.Exit, bool) {
	for !a.anyFault(p, running) {
		select {
		case e := <-p.Exits():
			a.emitExit(e)
			return e, true
		case <-news.told:
		case <-news.files:
		case stop := <-a.opts.Rendezvous.Stops():
			if stop.Round == a.round.Number && a.pressed(stop) {
				return procs.Exit{}, false
			}
		case sig := <-a.opts.Forward:
			p.Signal(sig.(syscall.Signal))
		case <-a.opts.Hurry:
			return procs.Exit{}, false
		case <-ctx.Done():
			return procs.Exit{}, false
		case <-news.bound:
			return procs.Exit{}, false
		}
	}
	return procs.Exit{}, false
}

// pressed takes a Stop, which the failure has brought about, and says whether it leaves no time to hold anybody.
func (a *Agent) pressed(stop rdzv.Stop) bool {
	a.halt = &stop
	return a.round.WorldSize > 1 || !stop.KillBy.IsZero() && time.Until(stop.KillBy) < holdBound+a.opts.RestartGrace
}

// anyFault says whether a worker that runs would be to blame if it were stopped now.
func (a *Agent) anyFault(p Processes, running map[int]int) bool {
	now := time.Now()
	var exits []procs.Exit
	for rank, pid := range running {
		exits = append(exits, procs.Exit{LocalRank: rank, PID: pid, Signal: syscall.SIGTERM, At: now, Stopped: true})
	}
	for _, f := range a.inquire(p, exits, question{stopBegan: now}) {
		if len(f.Findings) > 0 && f.Kind().Grade() <= evidence.GradeSuspected {
			return true
		}
	}
	return false
}
