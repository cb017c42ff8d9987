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

// told is what the outside world tells the launcher, beside the end of its context.
type told struct {
	hurry   chan struct{}  // closed at a second interrupt, or when the guard is gone
	forward chan os.Signal // for the workers, without any other consequence
	stop    func()         // ends the listening and waits for it
}

// listen handles the signals given and the loss of the guard: the context ends with
// *agent.SignalError or errGuardGone, and so does the process, whatever holds it up, when
// grace and lastResort have passed. SIGQUIT is always handled, because the Go runtime
// would dump its stacks. SIGUSR1 and SIGUSR2 go to the workers unless they are
// among the signals given.
func listen(handle []syscall.Signal, grace time.Duration, lifeline *procs.Lifeline) (context.Context, *told) {
	ctx, cancel := context.WithCancelCause(context.Background())
	t := &told{hurry: make(chan struct{}), forward: make(chan os.Signal, 8)}
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

func (t *told) loop(cancel context.CancelCauseFunc, signals <-chan os.Signal, grace time.Duration, lifeline *procs.Lifeline, quit <-chan struct{}) {
	hurry := sync.OnceFunc(func() { close(t.hurry) })
	broken := lifeline.Broken()
	var first time.Time
	var code int
	var last <-chan time.Time
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
			case time.Since(first) > echo && (sig == syscall.SIGINT || sig == syscall.SIGQUIT):
				hurry() // somebody at a terminal has no patience left
			}
		case <-broken:
			broken = nil
			hurry()
			end(errGuardGone, 0)
		case <-last:
			lifeline.Announce()
			os.Exit(code)
		case <-quit:
			return
		}
	}
}
