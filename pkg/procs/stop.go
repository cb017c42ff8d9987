package procs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// killGrace is how long a process may take to vanish after SIGKILL; only one
// in uninterruptible sleep takes that long.
const killGrace = 10 * time.Second

// StuckError names processes that are still there after SIGKILL.
type StuckError struct {
	// Processes are one line each: "pid 42 (python3), state D, in uninterruptible sleep in
	// fuse_get_req, kernel stack: fuse_get_req < …", as far as the kernel tells.
	Processes []string
}

func (e *StuckError) Error() string {
	return "processes do not die: " + strings.Join(e.Processes, "; ")
}

// StopPolicy says how a group is stopped.
type StopPolicy struct {
	// Signal goes to each worker's process group first.
	Signal syscall.Signal
	// Grace is how long workers have before SIGKILL; 0 is none.
	Grace time.Duration
	// Leftovers is how long processes that outlive their worker have, after a
	// SIGTERM of their own; it is cut to what is left of Grace.
	Leftovers time.Duration
	// KillNow ends every grace when it is closed: SIGKILL at once. It may be nil.
	KillNow <-chan struct{}
}

// Stop ends the group and every process of the job by the ladder. It returns when
// nothing is left, or a [*StuckError] when a process survives SIGKILL for 10 s.
// It must be called once for every group, also for one whose workers have all
// exited.
func (g *Group) Stop(l StopPolicy) error {
	g.beginStop()
	if g.sup.opts.Track {
		g.track(liveJob())
	}
	deadline := time.Now().Add(l.Grace)
	left := g.stopWorkers(l)
	if len(left) == 0 {
		g.watchers.Wait()
		g.sup.reap(g.workers)
		left = g.stopLeftovers(l, min(l.Leftovers, time.Until(deadline)))
	}
	if len(left) > 0 {
		return fmt.Errorf("stop workers: %w", &StuckError{Processes: proctree.DescribeStuck(left)})
	}
	g.sup.release()
	return nil
}

// beginStop draws the line between causes and victims: a worker that is a zombie
// by now, or on its way to become one, ended by itself, even if nobody was told yet.
func (g *Group) beginStop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.workers {
		w.early = w.pid != 0 && (w.exited || proctree.HasExited(w.pid) || proctree.IsEnding(w.pid))
	}
	g.stopping = true
}

// stopWorkers returns when all workers have exited; else it returns what
// survives SIGKILL.
func (g *Group) stopWorkers(l StopPolicy) []proctree.Process {
	g.signalWorkers(l.Signal)
	if g.waitGone(l) {
		return nil
	}
	if l.Signal != syscall.SIGKILL {
		g.sup.opts.Logger.Warn().Str("after", SignalName(l.Signal)).Stringer("grace", l.Grace.Round(time.Millisecond)).Msg("workers still run: sending SIGKILL")
	}
	left := killAll(g.gone, g.isGone, func() []proctree.Process {
		g.signalWorkers(syscall.SIGKILL)
		return g.track(liveJob())
	})
	if g.isGone() {
		return left
	}
	return append(left, g.unseenEnds(left)...)
}

// unseenEnds lists the workers, but those in seen, whose end the kernel does not tell: a debugger keeps it to itself, or
// /proc does not show that they live.
func (g *Group) unseenEnds(seen []proctree.Process) (held []proctree.Process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.workers {
		if w.pid == 0 || w.exited || slices.ContainsFunc(seen, func(p proctree.Process) bool { return p.PID == w.pid }) {
			continue
		}
		p, ok := proctree.ReadChild(w.pid)
		if !ok {
			p = proctree.Process{PID: w.pid, State: '?', Comm: w.spec.Argv[0]}
		}
		held = append(held, p)
	}
	return held
}

// signalWorkers signals the process group of every worker. That of an exited
// worker too: its children may live, and the zombie keeps the number its own.
func (g *Group) signalWorkers(sig syscall.Signal) {
	for _, w := range g.workers {
		if w.pid == 0 {
			continue
		}
		err := syscall.Kill(-w.pid, sig)
		if err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, syscall.EPERM) {
			g.sup.opts.Logger.Warn().Err(err).Int("pid", w.pid).Msg("signalling a worker's process group")
		}
		// A stopped process acts on sig only once it is continued.
		_ = syscall.Kill(-w.pid, syscall.SIGCONT)
	}
}

// waitGone reports whether all workers exited within the grace.
func (g *Group) waitGone(l StopPolicy) bool {
	timer := time.NewTimer(l.Grace)
	defer timer.Stop()
	select {
	case <-g.gone:
		return true
	case <-timer.C:
	case <-l.KillNow:
	}
	return g.isGone()
}

// stopLeftovers ends what the workers left behind. The workers are reaped, so every
// process of the job is a child of this process or below one; usually there
// is none, and the kernel says so in one call. They get SIGTERM whatever the
// workers got: what a shell started in the background ignores an interrupt.
func (g *Group) stopLeftovers(l StopPolicy, grace time.Duration) []proctree.Process {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	told := make(map[proctree.Process]bool) // by pid and start time
	for wait := l.Signal != syscall.SIGKILL; wait; {
		left := g.track(g.sup.leftovers())
		if len(left) == 0 {
			return nil
		}
		for _, p := range left {
			// One that was being forked during the look before is new in this one:
			// its parent's end has woken us.
			if who := (proctree.Process{PID: p.PID, Start: p.Start}); !told[who] {
				told[who] = true
				p.Signal(syscall.SIGTERM)
				p.Signal(syscall.SIGCONT)
			}
		}
		select {
		case <-g.sup.reaped:
		case <-timer.C:
			wait = false
		case <-l.KillNow:
			wait = false
		}
	}
	if len(g.sup.leftovers()) == 0 {
		return nil
	}
	return killAll(g.sup.reaped, func() bool { return len(g.sup.leftovers()) == 0 }, func() []proctree.Process { return g.track(g.sup.leftovers()) })
}

// killAll sends SIGKILL to what targets lists, again and again, until done or
// until killGrace has passed; then it returns what is left. wake tells it when to
// look.
func killAll(wake <-chan struct{}, done func() bool, targets func() []proctree.Process) []proctree.Process {
	deadline := time.NewTimer(killGrace)
	defer deadline.Stop()
	again := time.NewTicker(proctree.KillInterval)
	defer again.Stop()
	for {
		for _, p := range targets() {
			p.Signal(syscall.SIGKILL)
		}
		select {
		case <-wake:
		case <-again.C:
		case <-deadline.C:
			return slices.DeleteFunc(targets(), proctree.Process.Dead)
		}
		if done() {
			return nil
		}
	}
}

// Signal delivers sig to every worker that still runs, and to no other process.
func (g *Group) Signal(sig syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.workers {
		if w.pid != 0 && !w.exited {
			_ = syscall.Kill(w.pid, sig)
		}
	}
}
