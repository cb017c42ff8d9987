package agent

import (
	"context"
	"maps"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// maxStopDelay is how long deferStop lets the remaining workers run.
const maxStopDelay = time.Second

// deferStop delays the stop of the remaining workers while no worker has shown a fault of its own, and returns the
// exits that it has received meanwhile. first is the failure that ended the round.
//
// It delays only if first has merely lost its peer. That peer may still run its "finally" blocks or exit handlers when
// its victims are gone, and a stop would end it before it reports anything. In a job of several nodes there is usually
// no delay, because all nodes stop at once and wait for each other. But if first has waited for a peer in vain, every
// node lets its workers run until they have waited, too: the worker that stays silent is the lost peer.
func (a *Agent) deferStop(ctx context.Context, p Processes, first failure.Failure) (ended []procs.Exit) {
	alone := a.round.WorldSize == 1
	if a.hung != nil || first.Kind.Grade() != failure.GradePeer || !alone && !first.Waited {
		return nil
	}
	stderr := make(chan struct{}, 1)
	a.evidence.notify(stderr)
	defer a.evidence.notify(nil)
	files := a.watchErrorFilesNow()
	defer files.close(&a.closing)
	timer := time.NewTimer(maxStopDelay)
	defer timer.Stop()
	running := maps.Clone(p.PIDs())
	for gone := first.LocalRank; ; gone = ended[len(ended)-1].LocalRank {
		if delete(running, gone); alone && a.running-len(ended) <= 1 {
			return ended
		}
		x, ok := a.awaitNews(ctx, p, running, news{stderr, files.written, timer.C})
		if !ok {
			return ended
		}
		ended = append(ended, x)
		if !x.Success() && a.examineExits(p, []procs.Exit{x}, query{})[0].Kind.Grade() != failure.GradePeer {
			return ended
		}
	}
}

// news is what deferStop waits for besides exits.
type news struct {
	stderr  <-chan struct{} // a scanner has found something
	files   <-chan string   // an error file was written
	timeout <-chan time.Time
}

// awaitNews waits for the next exit; false says that the stop must not be delayed any longer.
func (a *Agent) awaitNews(ctx context.Context, p Processes, running map[int]int, n news) (procs.Exit, bool) {
	for !a.anyFault(p, running) {
		select {
		case x := <-p.Exits():
			a.emitExit(x)
			return x, true
		case <-n.stderr:
		case <-n.files:
		case stop := <-a.opts.Rendezvous.Stops():
			if stop.Round == a.round.Number && a.endsDelay(stop) {
				return procs.Exit{}, false
			}
		case sig := <-a.opts.Forward:
			p.Signal(sig.(syscall.Signal))
		case <-a.opts.KillNow:
			return procs.Exit{}, false
		case <-ctx.Done():
			return procs.Exit{}, false
		case <-n.timeout:
			return procs.Exit{}, false
		}
	}
	return procs.Exit{}, false
}

// endsDelay records a Stop that followed from the failure, and reports whether it leaves no time for the delay.
func (a *Agent) endsDelay(stop rdzv.Stop) bool {
	a.halt = &stop
	return a.round.WorldSize > 1 || !stop.KillBy.IsZero() && time.Until(stop.KillBy) < maxStopDelay+a.opts.RestartGrace
}

// anyFault reports whether a running worker would be to blame if it were stopped now.
func (a *Agent) anyFault(p Processes, running map[int]int) bool {
	now := time.Now()
	var exits []procs.Exit
	for rank, pid := range running {
		exits = append(exits, procs.Exit{LocalRank: rank, PID: pid, Signal: syscall.SIGTERM, At: now, Stopped: true})
	}
	for _, f := range a.examineExits(p, exits, query{stopBegan: now}) {
		if len(f.Findings) > 0 && f.Kind.Grade() <= failure.GradeSuspected {
			return true
		}
	}
	return false
}
