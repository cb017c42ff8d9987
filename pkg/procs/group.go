package procs

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Group is one set of running workers. [Supervisor.Start] makes it.
type Group struct {
	sup     *Supervisor
	workers []*worker
	exits   chan Exit
	marks   *workerlog.Timeline // when the log files were written; nil: not recorded

	gone     chan struct{} // closed when every started worker has exited
	watchers sync.WaitGroup
	tree     map[int]bool // pids of the job that Stop saw; nil without Options.Track

	mu       sync.Mutex
	stopping bool
	running  int
}

// worker is one process of a group. pid is 0 until it is forked.
type worker struct {
	spec           Spec
	pid            int
	startErr       error
	stdout, stderr *workerlog.Stream

	exited bool // guarded by Group.mu
	early  bool // guarded by Group.mu: it had exited, or was exiting, before the stop began
}

// Exits delivers one [Exit] for each worker that was started or could not be started, in the order in which the exits
// were seen. The channel has room for all of them and is never closed.
func (g *Group) Exits() <-chan Exit { return g.exits }

// HaveExited reports whether all workers have exited, even if [Group.Exits] has not delivered every exit yet. It is
// false if the start was canceled before all workers were started, because workers that never started have no Exit.
func (g *Group) HaveExited() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.workers {
		switch {
		case w.startErr != nil: // its Exit says so, and the workers after it do not start
			return true
		case w.pid == 0, !w.exited && !proctree.HasExited(w.pid):
			return false
		}
	}
	return true
}

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

// ProcessTree returns the pids of the workers. With [Options.Track] it also returns the pids of every process of the
// job that lived when Stop began or that Stop saw later. Call it after Stop.
func (g *Group) ProcessTree() map[int]bool {
	all := maps.Clone(g.tree)
	if all == nil {
		all = make(map[int]bool)
	}
	for _, w := range g.workers {
		if w.pid != 0 {
			all[w.pid] = true
		}
	}
	return all
}

// track records processes of the job, and returns them.
func (g *Group) track(ps []proctree.Process) []proctree.Process {
	if !g.sup.opts.Track {
		return ps
	}
	if g.tree == nil {
		g.tree = make(map[int]bool)
	}
	for _, p := range ps {
		g.tree[p.PID] = true
	}
	return ps
}

// Tail returns the last lines that a worker wrote to its stderr, as far as the launcher saw them. It may be
// called at any time; the lines are complete after [Group.Drain].
func (g *Group) Tail(localRank int) []string {
	for _, w := range g.workers {
		if w.spec.LocalRank == localRank {
			return w.stderr.Tail()
		}
	}
	return nil
}

// LastLine returns the last line that a worker wrote, to the stream that it wrote to last, as far as the launcher saw
// it. Blank lines do not count. It may be called at any time.
func (g *Group) LastLine(localRank int) string {
	for _, w := range g.workers {
		if w.spec.LocalRank != localRank {
			continue
		}
		out, outAt := w.stdout.LastLine()
		line, at := w.stderr.LastLine()
		if line == "" || outAt.After(at) {
			return out
		}
		return line
	}
	return ""
}

// defaultOutputTimeout is the default of [Options.OutputTimeout].
const defaultOutputTimeout = 5 * time.Second

// WaitOutput waits until all output of the group is in its files and on the console, or until ctx ends. It reports
// whether all output is there. Call it after Stop, and Drain after it: WaitOutput gives no output up.
func (g *Group) WaitOutput(ctx context.Context) bool {
	return !slices.ContainsFunc(g.endingStreams(), func(s *workerlog.Stream) bool { return !s.Ends(ctx) })
}

// Drain waits until all output of the group is in its files and on the console. Call it after Stop. When ctx ends
// first, Drain gives up what is still unread, and the error says so.
func (g *Group) Drain(ctx context.Context) error {
	streams := g.endingStreams()
	errs := make([]error, len(streams))
	var done sync.WaitGroup
	for i, s := range streams {
		done.Go(func() { errs[i] = s.Wait(ctx) })
	}
	done.Wait()
	g.marks.Close(ctx)
	return errors.Join(errs...)
}

// endingStreams returns the streams of all workers. They end within the output timeout if only processes outside the
// job have them open.
func (g *Group) endingStreams() (all []*workerlog.Stream) {
	for _, w := range g.workers {
		all = append(all, w.stdout, w.stderr)
	}
	for _, s := range all {
		s.SetIdleTimeout(g.sup.opts.OutputTimeout)
	}
	return all
}

// fork starts the workers. It runs on the supervisor's thread. It stops at the first worker that cannot be executed,
// or once the start is canceled.
func (g *Group) fork(canceled <-chan struct{}) {
	for _, w := range g.workers {
		if g.sup.canceled(canceled) {
			return
		}
		path, err := exec.LookPath(w.spec.Argv[0])
		if err == nil || errors.Is(err, exec.ErrDot) { // as execvp, which lets PATH name "."
			w.pid, err = g.sup.forkKept(func() (int, error) { return forkWorker(path, w) })
		}
		if err != nil {
			w.startErr = explainExec(w.spec.Argv[0], path, err)
			return
		}
		preferForOOM(w.pid)
		g.running++
	}
}

// canceled reports whether no further worker may be started.
func (s *Supervisor) canceled(canceled <-chan struct{}) bool {
	select {
	case <-canceled:
		return true
	default:
		return s.opts.Expired != nil && s.opts.Expired()
	}
}

// forkExec forks and executes the worker as its spec says.
func (w *worker) forkExec(path string, sys *syscall.SysProcAttr) (pid int, err error) {
	return syscall.ForkExec(path, w.spec.Argv, &syscall.ProcAttr{
		Env:   w.spec.Env,
		Files: []uintptr{0, w.stdout.ChildFile().Fd(), w.stderr.ChildFile().Fd()},
		Sys:   sys,
	})
}

// watch begins to copy output and to wait for exits.
func (g *Group) watch() {
	g.marks.Start()
	for _, w := range g.workers {
		w.stdout.Start()
		w.stderr.Start()
		switch {
		case w.startErr != nil:
			g.exits <- startExit(w.spec.LocalRank, w.startErr, time.Now())
		case w.pid != 0:
			g.watchers.Go(func() { g.exited(w, awaitExit(w.pid)) })
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

// exited publishes the exit of w.
func (g *Group) exited(w *worker, e Exit) {
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

// openTimeline opens the timeline that the workers' outputs name. All outputs of a group name the same one.
func (g *Group) openTimeline(specs []Spec, warn func(error)) {
	for _, spec := range specs {
		if path := cmp.Or(spec.Stdout.Timeline, spec.Stderr.Timeline); path != "" {
			g.marks = workerlog.OpenTimeline(path, warn)
			return
		}
	}
}

// openStreams prepares the worker's stdout and stderr.
func (w *worker) openStreams(console *workerlog.Console, marks *workerlog.Timeline) (err error) {
	if w.stdout, err = workerlog.OpenStream(w.spec.Stdout, console, workerlog.Stdout); err != nil {
		return err
	}
	if w.stderr, err = workerlog.OpenStream(w.spec.Stderr, console, workerlog.Stderr); err != nil {
		return err
	}
	w.stdout.WriteTimeline(marks, w.spec.LocalRank, workerlog.Stdout)
	w.stderr.WriteTimeline(marks, w.spec.LocalRank, workerlog.Stderr)
	return nil
}

// closeStreams releases the streams of workers that were never started.
func (g *Group) closeStreams() {
	g.marks.Discard()
	for _, w := range g.workers {
		if w.stdout != nil {
			w.stdout.Discard()
		}
		if w.stderr != nil {
			w.stderr.Discard()
		}
	}
}
