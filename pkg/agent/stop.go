package agent

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// leftoverGrace is how long processes that outlive their worker have to obey a
// signal when the job goes on or has ended by itself.
const leftoverGrace = 2 * time.Second

// ladder is how the group is stopped now: by the agent's own decision, or that of the rendezvous and in its time, while
// ctx lives; with the launcher's own signal, and the whole grace for everybody, when it was told to stop; else with
// SIGKILL.
func (a *Agent) ladder(ctx context.Context) procs.StopPolicy {
	l := procs.StopPolicy{
		Signal: syscall.SIGTERM, Grace: a.opts.RestartGrace, Leftovers: leftoverGrace,
	}
	var told *SignalError
	switch {
	case ctx.Err() == nil:
	case errors.As(context.Cause(ctx), &told):
		l.Signal, l.Grace, l.Leftovers = told.Signal, a.opts.ShutdownTimeout, a.opts.ShutdownTimeout
	default:
		l.Signal, l.Grace = syscall.SIGKILL, 0
	}
	if a.halt != nil && !a.halt.KillBy.IsZero() {
		l.Grace = min(l.Grace, max(0, time.Until(a.halt.KillBy)))
	}
	return l
}

// stop ends the workers that are running, if any, and waits for their output. No grace outlasts the KillBy of a Stop,
// not even of one that comes while it waits. Told to stop meanwhile, it goes on by the ladder, but for no longer than the
// shutdown timeout from then on, and cuts the wait for a console that nobody reads.
func (a *Agent) stop(ctx context.Context, l procs.StopPolicy) error {
	if a.processes == nil {
		return nil
	}
	p := a.processes
	a.processes = nil
	hurry := newHurry(ctx, a.opts, a.round.Number)
	l.KillNow = hurry.now
	err := a.timed(events.StepStop, func() error { return p.Stop(l) })
	a.family = p.ProcessTree()
	if came := hurry.end(); came != nil && a.halt == nil {
		a.halt = came
	}
	if err != nil {
		a.unread = p // of those that did end it is complete, or will be in a moment
		return errors.Join(err, a.setState(Unknown))
	}
	a.opts.Rendezvous.Stopped()
	a.settle(ctx, p)
	return nil
}

// hurry tells a stop that is under way when there is no time left for a grace.
type hurry struct {
	now  chan struct{} // closed when SIGKILL is due
	quit chan struct{}
	done chan struct{}
	came *rdzv.Stop // the last Stop of the round that came, once done is closed
}

// newHurry begins to listen to the user's haste, for the end of ctx and for the Stops of a round. Call end when the
// workers are gone.
func newHurry(ctx context.Context, o Options, round int) *hurry {
	h := &hurry{now: make(chan struct{}), quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(h.done)
		h.listen(ctx.Done(), o, round)
	}()
	return h
}

func (h *hurry) listen(told <-chan struct{}, o Options, round int) {
	var killBy time.Time
	var due <-chan time.Time
	by := func(t time.Time) { // the earliest counts
		if killBy.IsZero() || t.Before(killBy) {
			killBy, due = t, time.After(time.Until(t))
		}
	}
	for {
		select {
		case stop := <-o.Rendezvous.Stops():
			if stop.Round != round {
				continue
			}
			h.came = &stop
			if !stop.KillBy.IsZero() {
				by(stop.KillBy)
			}
			continue
		case <-told: // from now on the job does not go on
			told = nil
			by(time.Now().Add(o.ShutdownTimeout))
			continue
		case <-due:
		case <-o.Hurry:
		case <-h.quit:
			return
		}
		close(h.now)
		return
	}
}

// end stops listening and returns the Stop that came meanwhile, if one did.
func (h *hurry) end() *rdzv.Stop {
	close(h.quit)
	<-h.done
	return h.came
}

// withGrace returns a context that ends d after ctx does.
func withGrace(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unregister := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-late.Done():
		}
	})
	return late, func() {
		unregister()
		cancel()
	}
}

// echoBound is how long after a worker the launcher may get its own copy of a signal that everybody got.
const echoBound = 50 * time.Millisecond

// awaitSignal tells a failure from the effect of a signal that everybody in a
// control group got, workers first: then the launcher's own copy is due any moment. It
// returns the context's cause if that is so.
func awaitSignal(ctx context.Context, failed time.Time) error {
	timer := time.NewTimer(time.Until(failed.Add(echoBound)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	if ctx.Err() != nil && time.Since(failed) < time.Second {
		return context.Cause(ctx)
	}
	return nil
}
