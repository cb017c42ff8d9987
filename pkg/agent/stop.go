package agent

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// leftoverGrace is how long processes that outlive their worker have to obey a
// signal when the job goes on or has ended by itself.
const leftoverGrace = 2 * time.Second

// drainBound is how long output may take to reach a console that is not read,
// once the launcher was told to stop.
const drainBound = 5 * time.Second

// ladder is how the group is stopped now: by the agent's own decision, or that of the rendezvous and in its time, while
// ctx lives; with the launcher's own signal, and the whole grace for everybody, when it was told to stop; else with
// SIGKILL.
func (a *Agent) ladder(ctx context.Context) procs.Ladder {
	l := procs.Ladder{
		Signal: syscall.SIGTERM, Grace: a.opts.ShutdownTimeout, Leftovers: leftoverGrace,
	}
	var told *SignalError
	switch {
	case ctx.Err() == nil:
	case errors.As(context.Cause(ctx), &told):
		l.Signal, l.Leftovers = told.Signal, l.Grace
	default:
		l.Signal, l.Grace = syscall.SIGKILL, 0
	}
	if a.halt != nil && !a.halt.KillBy.IsZero() {
		l.Grace = min(l.Grace, max(0, time.Until(a.halt.KillBy)))
	}
	return l
}

// stop ends the workers that are running, if any, and waits for their output. No grace outlasts the KillBy of a Stop,
// not even of one that comes while it waits. Told to stop meanwhile, it goes on by the ladder, but cuts the wait for
// a console that nobody reads.
func (a *Agent) stop(ctx context.Context, l procs.Ladder) error {
	if a.processes == nil {
		return nil
	}
	p := a.processes
	a.processes = nil
	hurry := newHurry(a.opts.Hurry, a.opts.Rendezvous.Stops(), a.round.Number)
	l.Hurry = hurry.now
	err := a.prof("stop_workers", func() error { return p.Stop(l) })
	if came := hurry.end(); came != nil && a.halt == nil {
		a.halt = came
	}
	if err != nil {
		return errors.Join(err, a.setState(Unknown))
	}
	bounded, cancel := withGrace(ctx, drainBound)
	defer cancel()
	if err := p.Drain(bounded); err != nil {
		a.log.Warn().Err(err).Msg("output of workers is incomplete")
	}
	return nil
}

// hurry tells a stop that is under way when there is no time left for a grace.
type hurry struct {
	now  chan struct{} // closed when SIGKILL is due
	quit chan struct{}
	done chan struct{}
	came *rdzv.Stop // the last Stop of the round that came, once done is closed
}

// newHurry begins to listen to the user's haste, and for the Stops of a round. Call end when the workers are gone.
func newHurry(user <-chan struct{}, stops <-chan rdzv.Stop, round int) *hurry {
	h := &hurry{now: make(chan struct{}), quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(h.done)
		h.listen(user, stops, round)
	}()
	return h
}

func (h *hurry) listen(user <-chan struct{}, stops <-chan rdzv.Stop, round int) {
	var due <-chan time.Time
	for {
		select {
		case stop := <-stops:
			if stop.Round != round {
				continue
			}
			h.came = &stop
			if !stop.KillBy.IsZero() {
				due = time.After(time.Until(stop.KillBy))
			}
			continue
		case <-due:
		case <-user:
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
