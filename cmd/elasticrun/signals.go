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

// duplicateWindow is how long after a signal the same one is taken for a second copy of it: an
// init system or a scheduler signals guard and agent alike, and the guard
// passes its own copy on.
const duplicateWindow = time.Second

// lastResort is how long the launcher may take to end after it was told to, on top of
// the workers' grace: SIGKILL and the drain of their output are bounded by 15 s, and
// what is left is a console that nobody reads, for which nobody waits.
const lastResort = 20 * time.Second

// guardGoneTime is how long an agent whose guard has died may take to end its job in order: one that hangs has nobody else to do it.
const guardGoneTime = 5 * time.Second

// urgentSignals are the signals that a launcher takes, when they come again, for somebody at
// a terminal who has no patience left.
func urgentSignals() []syscall.Signal { return []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT} }

// signalHandler is what the outside world tells this process, beside the end of its context.
type signalHandler struct {
	urgent    chan struct{}    // closed at a second signal that is urgent, or when the guard is gone
	urgentSet []syscall.Signal // those that are
	forward   chan os.Signal   // for the workers, without any other consequence
	stop      func()           // ends the listening and waits for it
}

// handleSignals handles the signals given and the loss of the guard: the context ends with
// *agent.SignalError or errGuardGone, and so does the process, whatever holds it up, when
// grace and lastResort have passed. SIGQUIT is always handled, because the Go runtime
// would dump its stacks. SIGUSR1 and SIGUSR2 go to the workers unless they are
// among the signals given. After any of them, and the time of an duplicateWindow, one that is urgent makes it killNow.
func handleSignals(handle, urgent []syscall.Signal, grace time.Duration, lifeline *guard.Lifeline) (context.Context, *signalHandler) {
	ctx, cancel := context.WithCancelCause(context.Background())
	h := &signalHandler{urgent: make(chan struct{}), urgentSet: urgent, forward: make(chan os.Signal, 8)}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, procs.NotIgnored(append(slices.Clone(handle), syscall.SIGQUIT))...)
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2} {
		if !slices.Contains(handle, sig) {
			signal.Notify(h.forward, sig)
		}
	}
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() { h.loop(cancel, signals, grace, lifeline, quit) })
	h.stop = func() {
		signal.Stop(signals)
		signal.Stop(h.forward)
		close(quit)
		done.Wait()
		cancel(nil)
	}
	return ctx, h
}

func (h *signalHandler) loop(cancel context.CancelCauseFunc, signals <-chan os.Signal, grace time.Duration, lifeline *guard.Lifeline, quit <-chan struct{}) {
	killNow := sync.OnceFunc(func() { close(h.urgent) })
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
			case time.Since(first) > duplicateWindow && slices.Contains(h.urgentSet, sig):
				killNow()
			}
		case <-broken:
			broken = nil
			killNow()
			end(errGuardGone, 0)
			unguarded = time.After(guardGoneTime)
		case <-unguarded:
			procs.Sweep(lastResort / 2)
		case <-last:
			lifeline.AnnounceExit(code)
			os.Exit(code)
		case <-quit:
			return
		}
	}
}
