package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/procs/guard"
)

// errGuardGone is why a run ends whose guard was killed.
var errGuardGone = errors.New("the guard was killed: the job was ended")

// echo is how long after a signal the same one is taken for a second copy of it: an
// init system or a scheduler signals guard and agent alike, and the guard
// passes its own copy on.
const echo = time.Second

// lastResort is how long the launcher may take to end after it was told to, on top of
// the workers' grace: SIGKILL and the drain of their output are bounded by 15 s, and
// what is left is a console that nobody reads, for which nobody waits.
const lastResort = 20 * time.Second

// guardGoneTime is how long an agent whose guard has died may take to end its job in order: one that hangs has nobody else to do it.
const guardGoneTime = 5 * time.Second

// impatient are the signals that a launcher takes, when they come again, for somebody at
// a terminal who has no patience left.
func impatient() []syscall.Signal { return []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT} }

// told is what the outside world tells this process, beside the end of its context.
type told struct {
	hurry   chan struct{}    // closed at a second signal that is urgent, or when the guard is gone
	urgent  []syscall.Signal // those that are
	forward chan os.Signal   // for the workers, without any other consequence
	stop    func()           // ends the listening and waits for it
}

// listen handles the signals given and the loss of the guard: the context ends with
// *agent.SignalError or errGuardGone, and so does the process, whatever holds it up, when
// grace and lastResort have passed. SIGQUIT is always handled, because the Go runtime
// would dump its stacks. SIGUSR1 and SIGUSR2 go to the workers unless they are
// among the signals given. After any of them, and the time of an echo, one that is urgent makes it hurry.
func listen(handle, urgent []syscall.Signal, grace time.Duration, lifeline *guard.Lifeline) (context.Context, *told) {
	ctx, cancel := context.WithCancelCause(context.Background())
	t := &told{hurry: make(chan struct{}), urgent: urgent, forward: make(chan os.Signal, 8)}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, procs.NotIgnored(append(slices.Clone(handle), syscall.SIGQUIT))...)
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2} {
		if !slices.Contains(handle, sig) {
			signal.Notify(t.forward, sig)
		}
	}
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() { t.loop(cancel, signals, grace, lifeline, quit) })
	t.stop = func() {
		signal.Stop(signals)
		signal.Stop(t.forward)
		close(quit)
		done.Wait()
		cancel(nil)
	}
	return ctx, t
}

func (t *told) loop(cancel context.CancelCauseFunc, signals <-chan os.Signal, grace time.Duration, lifeline *guard.Lifeline, quit <-chan struct{}) {
	hurry := sync.OnceFunc(func() { close(t.hurry) })
	broken := lifeline.Broken()
	var first time.Time
	var code int
	var last, unguarded <-chan time.Time
	end := func(why error, within time.Duration) {
		cancel(why)
		code, last = conclude(agent.RunResult{}, why).code, time.After(within+lastResort)
	}
	for {
		select {
		case got := <-signals:
			sig := got.(syscall.Signal)
			switch {
			case first.IsZero():
				first = time.Now()
				end(&agent.SignalError{Signal: sig}, grace)
			case time.Since(first) > echo && slices.Contains(t.urgent, sig):
				hurry()
			}
		case <-broken:
			broken = nil
			hurry()
			end(errGuardGone, 0)
			unguarded = time.After(guardGoneTime)
		case <-unguarded:
			procs.Sweep(lastResort / 2)
		case <-last:
			lifeline.Announce(code)
			os.Exit(code)
		case <-quit:
			return
		}
	}
}
