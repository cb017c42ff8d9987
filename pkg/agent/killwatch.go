package agent

import (
	"context"
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// killWatch ends the grace of a stop when there is no time left for it.
type killWatch struct {
	kill     chan struct{}   // closed when SIGKILL is due
	announce func(rdzv.Stop) // notifies the workers that still run of a preemption
	stop     *rdzv.Stop      // the Stops that have arrived, merged; valid after end
	quit     func()
}

// watchForKill begins to watch for KillNow, the end of ctx and the Stops of a round. Shortly before the grace ends, it
// shows where the workers are. Call end when the workers are gone.
func watchForKill(
	ctx context.Context, o Options, round int, policy procs.StopPolicy, announce func(rdzv.Stop),
) *killWatch {
	w := &killWatch{kill: make(chan struct{}), announce: announce}
	killAt := time.Now().Add(policy.Grace)
	w.quit = inBackground(context.WithoutCancel(ctx), func(watch context.Context) {
		final := finalStacks{stacks: o.Stacks, signal: procs.SignalName(policy.Signal)}
		defer final.end()
		final.schedule(killAt)
		w.run(watch, ctx.Done(), o, round, &final)
	})
	return w
}

// run watches until SIGKILL is due or watch ends. runDone is closed when the context of Run ends.
func (w *killWatch) run(
	watch context.Context, runDone <-chan struct{}, o Options, round int, final *finalStacks,
) {
	var killBy time.Time
	var due <-chan time.Time
	killAt := func(t time.Time) { // the earliest counts
		if killBy.IsZero() || t.Before(killBy) {
			killBy, due = t, time.After(time.Until(t))
		}
		final.schedule(t)
	}
	for {
		select {
		case stop := <-o.Rendezvous.Stops():
			if stop.Round != round {
				continue
			}
			if stop.Preemption != nil {
				w.announce(stop)
			}
			if w.stop != nil {
				stop = stop.Merge(*w.stop)
			}
			w.stop = &stop
			if !stop.KillBy.IsZero() {
				killAt(stop.KillBy)
			}
			continue
		case <-runDone: // the job does not go on
			runDone = nil
			killAt(time.Now().Add(o.ShutdownTimeout))
			continue
		case <-final.due:
			final.show() //nolint:contextcheck // the stacks are shown although ctx has ended
			continue
		case <-due:
		case <-o.KillNow:
		case <-watch.Done():
			return
		}
		close(w.kill)
		return
	}
}

// end ends the watch and returns the Stop that arrived meanwhile, if any.
func (w *killWatch) end() *rdzv.Stop {
	w.quit()
	return w.stop
}
