package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/siginfo"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/procs/guard"
)

// errGuardGone ends a run whose guard was killed.
var errGuardGone = errors.New("the guard was killed: this node's workers were stopped")

// duplicateWindow is how long after a signal a second one counts as a copy of the first: an init system or a scheduler
// signals guard and agent alike, and the guard passes its own copy on.
const duplicateWindow = time.Second

// forcedExit is the time after a signal and the workers' grace at which the launcher exits even if something blocks
// it. SIGKILL and the drain of the output end within 15 s, but a console that nobody reads can block forever. Tests
// shorten it.
var forcedExit = 20 * time.Second

// killTimeout is how long agent and guard wait for processes that survive SIGKILL. Zero stands for the defaults of
// packages procs and guard. Tests shorten it.
var killTimeout time.Duration

// progressAfter is the time after the first worker is done until a line says where the others are. Zero stands for the
// default of package agent. Tests shorten it.
var progressAfter time.Duration

// guardGoneTimeout is how long an agent whose guard died may take to end its job in order. After that it kills
// every process of the job itself, because nothing else would if the agent hangs.
const guardGoneTimeout = 5 * time.Second

// urgentSignals are the signals that a person at a terminal sends a second time to make a launcher stop at once.
func urgentSignals() []syscall.Signal { return []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT} }

// signalHandler turns signals into a canceled context, an urgent stop, and signals for the workers.
type signalHandler struct {
	urgent        chan struct{} // closed at a second, urgent signal, or when the guard has died
	urgentSignals []syscall.Signal
	forward       chan os.Signal // signals for the workers, which do not stop the job
	preemptions   preemptions
	origins       *siginfo.Watcher
	sender        atomic.Pointer[siginfo.Sender] // of the first signal; nil if it is not known
	suspension    procs.Suspension
	showStacks    chan struct{} // receives when Ctrl-\ was typed and the job is not being stopped
	stop          func()        // stops handling signals and waits for the handler's goroutine
}

// handleSignals handles the signals in stopSignals and the death of the guard. Either cancels the context, with
// *agent.SignalError or errGuardGone as its cause; grace and forcedExit later the process exits, whatever blocks it.
// After the first signal, and after duplicateWindow, a signal in urgentSignals closes urgent.
//
// A signal in preemptSignals asks for a preemption; one that is in stopSignals too, or SIGTERM, does so only the first
// time, and stops the launcher duplicateWindow later.
//
// SIGQUIT is always a stop signal, because the Go runtime would dump its stacks. SIGUSR1 and SIGUSR2 go to the workers
// unless they are in stopSignals or preemptSignals.
//
// When Ctrl-\ is typed, the guard asks for the workers' stacks instead of passing SIGQUIT on. Once the job is being
// stopped, the key counts as SIGQUIT all the same.
//
// When the guard asks to suspend the job (Ctrl-Z), suspension stops it, and continues it later. A job that is being
// stopped is not suspended.
func handleSignals(
	stopSignals, urgentSignals, preemptSignals []syscall.Signal, grace time.Duration, lifeline *guard.Lifeline,
) (context.Context, *signalHandler) {
	ctx, cancel := context.WithCancelCause(context.Background())
	h := &signalHandler{
		urgent: make(chan struct{}), urgentSignals: urgentSignals, forward: make(chan os.Signal, 8),
		showStacks: make(chan struct{}, 1), preemptions: newPreemptions(preemptSignals),
	}
	handled := slices.Concat(stopSignals, preemptSignals, []syscall.Signal{syscall.SIGQUIT})
	h.origins = siginfo.Watch(handled...)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, procs.NotIgnored(handled)...)
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2} {
		if !slices.Contains(handled, sig) {
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
		h.origins.Close()
		cancel(nil)
	}
	return ctx, h
}

func (h *signalHandler) loop(
	cancel context.CancelCauseFunc, signals <-chan os.Signal, grace time.Duration, lifeline *guard.Lifeline,
	quit <-chan struct{},
) {
	stopNow := sync.OnceFunc(func() { close(h.urgent) })
	guardGone := lifeline.Broken()
	var first time.Time
	var code int
	var exit, sweep <-chan time.Time
	end := func(cause error, grace time.Duration) {
		cancel(cause)
		code, exit = conclude(agent.RunResult{}, cause).code, time.After(grace+forcedExit)
	}
	for {
		select {
		case got := <-signals:
			sig := got.(syscall.Signal)
			if first.IsZero() {
				from, sender := h.origins.Take(sig).From(sig, procs.ProcIsOurs())
				h.sender.Store(sender)
				if h.preemptions.take(sig, from) {
					continue
				}
				first = time.Now()
				end(&agent.SignalError{Signal: sig, From: from}, grace)
			} else if h.isUrgent(sig, first) {
				stopNow()
			}
		case <-lifeline.StackRequests():
			if first.IsZero() {
				h.requestStacks()
			} else if h.isUrgent(syscall.SIGQUIT, first) {
				stopNow()
			}
		case <-guardGone:
			guardGone = nil
			stopNow()
			end(errGuardGone, 0)
			sweep = time.After(guardGoneTimeout)
		case r := <-lifeline.SuspendRequests():
			switch {
			case !r.Suspend:
				h.suspension.Resume()
			case first.IsZero():
				lifeline.ConfirmSuspended(r, h.suspension.Suspend())
			}
		case <-sweep:
			procs.Sweep(forcedExit / 2)
		case <-exit:
			lifeline.AnnounceExit(code)
			os.Exit(code)
		case <-quit:
			return
		}
	}
}

// isUrgent reports whether a signal after the first one, which came at first, leaves no time for a grace.
func (h *signalHandler) isUrgent(sig syscall.Signal, first time.Time) bool {
	return time.Since(first) > duplicateWindow && slices.Contains(h.urgentSignals, sig)
}

// requestStacks requests the workers' stacks, unless a request waits already.
func (h *signalHandler) requestStacks() {
	select {
	case h.showStacks <- struct{}{}:
	default:
	}
}
