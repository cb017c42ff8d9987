package procs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/plural"
	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// defaultKillTimeout is the default of [Options.KillTimeout].
const defaultKillTimeout = 10 * time.Second

// StuckError names processes that survived SIGKILL.
type StuckError struct {
	// Processes has one line for each process: "pid 42 (python3), state D, in uninterruptible sleep in fuse_get_req,
	// kernel stack: fuse_get_req < …", as far as the kernel reports it.
	Processes []string
}

func (e *StuckError) Error() string {
	return "processes do not die: " + strings.Join(e.Processes, "; ")
}

// StopPolicy says how a group is stopped.
type StopPolicy struct {
	// Signal is sent to each worker's process group first.
	Signal syscall.Signal
	// Grace is how long workers may take to exit before SIGKILL. 0 means SIGKILL at once.
	Grace time.Duration
	// Leftovers is how long processes that outlive their worker may take to exit after SIGTERM. It is at most what is
	// left of Grace.
	Leftovers time.Duration
	// Advice follows the log line about workers that take long to exit, such as "press Ctrl-C again after a second to kill
	// them now". With advice a person waits, so the line comes sooner. It may be empty.
	Advice string
	// KillNow ends every grace period when it is closed: SIGKILL at once. It may be nil.
	KillNow <-chan struct{}
}

// Stop ends the group and every process of the job as policy says. It returns when no process is left, or a
// [*StuckError] if a process survives SIGKILL for [Options.KillTimeout]. Call it once for every group, even if all its
// workers have exited. After a StuckError it may be called again.
func (g *Group) Stop(policy StopPolicy) error {
	g.beginStop()
	if g.sup.opts.Track {
		g.track(liveJob())
	}
	deadline := time.Now().Add(policy.Grace)
	left := g.stopWorkers(policy)
	if len(left) == 0 {
		g.watchers.Wait()
		g.sup.reap(g.workers)
		left = g.stopLeftovers(policy, min(policy.Leftovers, time.Until(deadline)))
	}
	if len(left) > 0 {
		return fmt.Errorf("stop workers: %w", &StuckError{Processes: proctree.DescribeStuck(left)})
	}
	g.sup.opts.Suspension.groupEnded()
	g.sup.release()
	return nil
}

// beginStop separates causes from victims. A worker that is a zombie by now, or that is exiting, ended by itself,
// even if its exit was not delivered yet.
func (g *Group) beginStop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.workers {
		w.early = w.pid != 0 && (w.exited || proctree.HasExited(w.pid) || proctree.IsEnding(w.pid))
	}
	g.stopping = true
}

// stopWorkers returns once all workers have exited. Otherwise it returns the processes that survived SIGKILL.
func (g *Group) stopWorkers(policy StopPolicy) []proctree.Process {
	g.signalWorkers(policy.Signal)
	g.sup.opts.Suspension.groupEnds()
	if g.waitGone(policy) {
		return nil
	}
	if policy.Signal != syscall.SIGKILL {
		g.sup.opts.Logger.Warn().Str("after", SignalName(policy.Signal)).
			Str("grace", seconds.Format(policy.Grace)).
			Msg("workers still run: sending SIGKILL")
	}
	left := g.sup.killAll(g.gone, g.isGone, func() []proctree.Process {
		g.signalWorkers(syscall.SIGKILL)
		return g.track(liveJob())
	})
	if g.isGone() {
		return left
	}
	return append(left, g.unreportedExits(left)...)
}

// unreportedExits lists the workers, except those in seen, whose exit the kernel does not report: a debugger holds
// the exit status, or /proc does not show the worker.
func (g *Group) unreportedExits(seen []proctree.Process) (held []proctree.Process) {
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

// signalWorkers signals the process group of every worker, also of a worker that has exited: its children may live,
// and the zombie keeps the process group's number from being reused.
func (g *Group) signalWorkers(sig syscall.Signal) {
	for _, w := range g.workers {
		if w.pid == 0 {
			continue
		}
		err := syscall.Kill(-w.pid, sig)
		if err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, syscall.EPERM) {
			g.sup.opts.Logger.Warn().Err(err).Int("pid", w.pid).Msg("cannot signal a worker's process group")
		}
		// A stopped process acts on sig only once it continues.
		_ = syscall.Kill(-w.pid, syscall.SIGCONT)
	}
}

// How long workers may take to exit before a log line announces the wait. Workers that obey an interrupt at once cause
// no line, and a person does not notice the wait.
const (
	silence          = time.Second
	interruptSilence = 100 * time.Millisecond // with [StopPolicy.Advice]
)

// waitGone reports whether all workers exited within the grace period.
func (g *Group) waitGone(policy StopPolicy) bool {
	quiet := silence
	if policy.Advice != "" {
		quiet = interruptSilence
	}
	timer, late := time.NewTimer(policy.Grace), time.NewTimer(quiet)
	defer timer.Stop()
	defer late.Stop()
	for {
		select {
		case <-g.gone:
			return true
		case <-late.C:
			if left := policy.Grace - quiet; left > 0 {
				g.announceWait(left, policy.Advice)
			}
			continue
		case <-timer.C:
		case <-policy.KillNow:
		}
		return g.isGone()
	}
}

// announceWait logs how many workers have not exited yet, and how long they still have.
func (g *Group) announceWait(left time.Duration, advice string) {
	g.mu.Lock()
	running := 0
	for _, w := range g.workers {
		if w.pid != 0 && !w.exited {
			running++
		}
	}
	g.mu.Unlock()
	if advice != "" {
		advice = "; " + advice
	}
	g.sup.opts.Logger.Warn().Msgf("stopping %s, up to %s%s",
		plural.Of(running, "worker"), seconds.Format(left.Round(time.Second)), advice)
}

// stopLeftovers ends the processes that the workers left behind. The workers have been reaped, so every process of
// the job is a child or a descendant of this process. Usually one system call shows that there is none. Leftovers get
// SIGTERM, not the workers' signal, because a shell's background processes ignore SIGINT.
func (g *Group) stopLeftovers(policy StopPolicy, grace time.Duration) []proctree.Process {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	signaled := make(map[proctree.Process]bool) // by pid and start time
	for wait := policy.Signal != syscall.SIGKILL; wait; {
		left := g.track(g.sup.leftovers())
		if len(left) == 0 {
			return nil
		}
		for _, p := range left {
			// A process that was being forked during the previous scan is new in this one: its parent's exit has
			// woken this loop.
			if who := (proctree.Process{PID: p.PID, Start: p.Start}); !signaled[who] {
				signaled[who] = true
				p.Signal(syscall.SIGTERM)
				p.Signal(syscall.SIGCONT)
			}
		}
		select {
		case <-g.sup.reaped:
		case <-timer.C:
			wait = false
		case <-policy.KillNow:
			wait = false
		}
	}
	if len(g.sup.leftovers()) == 0 {
		return nil
	}
	return g.sup.killAll(g.sup.reaped,
		func() bool { return len(g.sup.leftovers()) == 0 },
		func() []proctree.Process { return g.track(g.sup.leftovers()) })
}

// killAll sends SIGKILL to all targets, repeatedly, until done reports true or the kill timeout has passed. Then it
// returns the targets that are left. A receive from wake makes it check again at once.
func (s *Supervisor) killAll(
	wake <-chan struct{}, done func() bool, targets func() []proctree.Process,
) []proctree.Process {
	deadline := time.NewTimer(s.opts.KillTimeout)
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

// Signal sends sig to every worker that still runs, and to no other process.
func (g *Group) Signal(sig syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.workers {
		if w.pid != 0 && !w.exited {
			_ = syscall.Kill(w.pid, sig)
		}
	}
}

// SignalHandlers sends sig to each running worker that handles it. For a wrapper, such as a shell script, it signals
// the program inside. A worker without a handler may still be starting, and the signal would kill it. SignalHandlers
// skips the local ranks in signaled, adds those that it signals, and reports whether all running workers are in it. If
// the kernel does not show which signals a worker handles, the worker gets the signal.
func (g *Group) SignalHandlers(sig syscall.Signal, signaled map[int]bool) (all bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	all = true
	for rank, w := range g.workers {
		if w.pid == 0 || w.exited || signaled[rank] {
			continue
		}
		pid, known := proctree.SignalHandler(w.pid, sig)
		if !known {
			pid = w.pid
		}
		signaled[rank] = pid != 0 && syscall.Kill(pid, sig) == nil
		all = all && signaled[rank]
	}
	return all
}
