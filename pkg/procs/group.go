package procs

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Group is one set of running workers.
type Group struct {
	sup     *Supervisor
	workers []*worker
	exits   chan Exit

	gone     chan struct{} // closed when every started worker has exited
	watchers sync.WaitGroup

	mu       sync.Mutex
	stopping bool
	running  int
}

// worker is one process of a group. pid is 0 until it was forked.
type worker struct {
	spec           Spec
	pid            int
	startErr       error
	stdout, stderr *Stream

	exited bool // guarded by Group.mu
	early  bool // guarded by Group.mu: it had ended before the stop began
}

// Exits delivers one [Exit] for each worker that was started or could not be, in
// the order in which the ends were seen. It holds them all without a reader and
// is never closed.
func (g *Group) Exits() <-chan Exit { return g.exits }

// PIDs maps local ranks to the pids of the workers that were started.
func (g *Group) PIDs() map[int]int {
	pids := make(map[int]int, len(g.workers))
	for _, w := range g.workers {
		if w.pid != 0 {
			pids[w.spec.LocalRank] = w.pid
		}
	}
	return pids
}

// Tail returns the last lines that a worker wrote to its stderr, as far as the
// launcher saw them. Call it after [Group.Drain].
func (g *Group) Tail(localRank int) []string {
	for _, w := range g.workers {
		if w.spec.LocalRank == localRank {
			return w.stderr.Tail()
		}
	}
	return nil
}

// heldOpen is how long a stream may stay open and silent after the last process
// of the job has gone: somebody outside got hold of it.
const heldOpen = 5 * time.Second

// Drain waits until all output of the group is where it belongs. It follows Stop.
// When ctx ends first, what is still unread is given up and the error says so.
func (g *Group) Drain(ctx context.Context) error {
	errs := make([]error, 2*len(g.workers))
	var done sync.WaitGroup
	for i, w := range g.workers {
		w.stdout.Hurry(heldOpen)
		w.stderr.Hurry(heldOpen)
		done.Go(func() { errs[2*i] = w.stdout.Wait(ctx) })
		done.Go(func() { errs[2*i+1] = w.stderr.Wait(ctx) })
	}
	done.Wait()
	return errors.Join(errs...)
}

// fork starts the workers; it runs on the supervisor's thread. It ends at the
// first worker that cannot be executed.
func (g *Group) fork() {
	for _, w := range g.workers {
		path, err := exec.LookPath(w.spec.Argv[0])
		if err == nil || errors.Is(err, exec.ErrDot) { // as execvp, which lets PATH name "."
			w.pid, err = g.sup.forkKept(func() (int, error) { return forkWorker(path, w) })
		}
		if err != nil {
			w.startErr = fmt.Errorf("execute %s: %w", w.spec.Argv[0], err)
			return
		}
		g.running++
	}
}

// forkExec forks and executes the worker as its spec says.
func (w *worker) forkExec(path string, sys *syscall.SysProcAttr) (pid int, err error) {
	stdin := uintptr(0)
	if w.spec.Stdin != nil {
		stdin = w.spec.Stdin.Fd()
	}
	return syscall.ForkExec(path, w.spec.Argv, &syscall.ProcAttr{
		Dir:   w.spec.Dir,
		Env:   w.spec.Env,
		Files: []uintptr{stdin, w.stdout.ChildFile().Fd(), w.stderr.ChildFile().Fd()},
		Sys:   sys,
	})
}

// watch begins to copy output and to wait for exits.
func (g *Group) watch() {
	for _, w := range g.workers {
		w.stdout.Start()
		w.stderr.Start()
		switch {
		case w.startErr != nil:
			g.exits <- startExit(w.spec.LocalRank, w.startErr, time.Now())
		case w.pid != 0:
			g.watchers.Go(func() { g.ended(w, awaitExit(w.pid)) })
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running == 0 && !g.isGone() {
		close(g.gone)
	}
}

func (g *Group) isGone() bool {
	select {
	case <-g.gone:
		return true
	default:
		return false
	}
}

// ended publishes the exit of w.
func (g *Group) ended(w *worker, e Exit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e.LocalRank = w.spec.LocalRank
	e.PID = w.pid
	e.At = time.Now()
	e.Stopped = g.stopping && !w.early
	w.exited = true
	g.exits <- e
	if g.running--; g.running == 0 {
		close(g.gone)
	}
}

// openStreams prepares the worker's stdout and stderr.
func (w *worker) openStreams(console *Console) (err error) {
	if w.stdout, err = OpenStream(w.spec.Stdout, console, Stdout); err != nil {
		return err
	}
	if w.stderr, err = OpenStream(w.spec.Stderr, console, Stderr); err != nil {
		return err
	}
	return nil
}

// closeStreams gives up the streams of workers that were never started.
func (g *Group) closeStreams() {
	for _, w := range g.workers {
		if w.stdout != nil {
			w.stdout.Abandon()
		}
		if w.stderr != nil {
			w.stderr.Abandon()
		}
	}
}
