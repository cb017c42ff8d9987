package procs

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Options configure a [Supervisor].
type Options struct {
	// Console shows the workers' output. Nil shows nothing.
	Console *workerlog.Console
	// Workers is the largest number of workers in a group. Their threads are made in advance.
	Workers int
	// Track makes groups record which processes they stop, for [Group.ProcessTree]. It costs one scan of /proc for
	// each Stop.
	Track bool
	// Expired is called before each worker is forked. If it returns true, no further worker is started. Nil means
	// never. It is for a process that was stopped (SIGSTOP) while it started workers, and cannot know how much time
	// has passed since.
	Expired func() bool
	// Suspension suspends the workers of this supervisor. It may be nil.
	Suspension *Suspension
	// KillTimeout is how long a process may take to vanish after SIGKILL before Stop gives up. Only a process in
	// uninterruptible sleep, or one held by a debugger, takes long. 0 means 10 s.
	KillTimeout time.Duration
	// OutputTimeout is how long a stream may stay open and silent after the last process of the job has gone, because a
	// process outside the job inherited it. 0 means 5 s.
	OutputTimeout time.Duration
	// Logger is the launcher's own log. The zero value discards everything.
	Logger zerolog.Logger
}

// foreignProc is the warning for a /proc that shows no process of this pid namespace.
const foreignProc = "/proc is missing or belongs to another pid namespace: elasticrun signals only its own children, " +
	"so what workers leave behind ends one generation after another, which may take seconds, " +
	"neither CPU nor memory of workers is measured, and no hang is noticed; mount /proc anew (unshare --mount-proc)"

// Supervisor starts worker groups, one after another.
type Supervisor struct {
	opts    Options
	spawner *spawner

	sigchld chan os.Signal
	reaped  chan struct{} // receives after orphans may have been reaped; capacity 1
	done    chan struct{}

	mu   sync.Mutex
	kept map[int]bool // pids of workers that only their group may reap
	busy bool         // a group is live
}

// NewSupervisor makes this process a child subreaper and starts the goroutines that fork workers and reap adopted
// orphans. Close it after its last group has been stopped. It returns a [*ResourceError] if there is no room for its
// threads.
func NewSupervisor(opts Options) (*Supervisor, error) {
	if err := reserveForWorkers(opts.Workers); err != nil {
		return nil, err
	}
	if err := proctree.BecomeSubreaper(); err != nil {
		return nil, fmt.Errorf("become child subreaper: %w", err)
	}
	opts.KillTimeout = cmp.Or(opts.KillTimeout, defaultKillTimeout)
	opts.OutputTimeout = cmp.Or(opts.OutputTimeout, defaultOutputTimeout)
	s := &Supervisor{
		opts:    opts,
		spawner: newSpawner(),
		sigchld: make(chan os.Signal, 1),
		reaped:  make(chan struct{}, 1),
		done:    make(chan struct{}),
		kept:    make(map[int]bool),
	}
	if !proctree.ProcIsOurs() {
		opts.Logger.Warn().Msg(foreignProc)
	}
	signal.Notify(s.sigchld, syscall.SIGCHLD)
	go s.reapOrphans()
	return s, nil
}

// Close ends the supervisor's goroutines. It fails while a group is live.
func (s *Supervisor) Close() error {
	s.mu.Lock()
	busy := s.busy
	s.mu.Unlock()
	if busy {
		return errors.New("close supervisor: its worker group has not been stopped")
	}
	signal.Stop(s.sigchld)
	close(s.sigchld)
	<-s.done
	s.spawner.close()
	return nil
}

// reapOrphans reaps adopted processes, as init would have done, whenever a child exits.
func (s *Supervisor) reapOrphans() {
	defer close(s.done)
	for range s.sigchld {
		if proctree.ProcIsOurs() {
			_, _ = s.reapAdopted() // Stop tries again after an error
		} else {
			s.reapFirst()
		}
		select {
		case s.reaped <- struct{}{}:
		default:
		}
	}
}

// reapAdopted reaps adopted children that have exited, and returns those that live. It holds the lock meanwhile for
// two reasons: a worker that was just forked must not be mistaken for an orphan, and the kernel's lists of children
// must only grow while they are read.
//
// The kernel has one list for each thread, so one scan is no snapshot: a child that exits during the scan may hand
// its own children to a list that was already read. But then the scan sees that child dead, and reapAdopted scans
// again after each dead child. So an empty result means that no adopted child lived when the last scan began.
func (s *Supervisor) reapAdopted() (alive []proctree.Process, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for again := true; again && len(alive) == 0; {
		again = false
		children, err := proctree.AdoptedChildren(func(pid int) bool { return s.kept[pid] })
		if err != nil {
			return nil, err
		}
		for _, p := range children {
			if p.Dead() {
				again = proctree.Reap(p.PID) || again
			} else {
				alive = append(alive, p)
			}
		}
	}
	return alive, nil
}

// reapFirst reaps exited orphans until the first exited child that the kernel reports is not an orphan. Without a
// usable /proc a scan of all children is too slow for each SIGCHLD. Stop reaps the rest.
func (s *Supervisor) reapFirst() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		pid := proctree.FirstDeadOrphan(func(pid int) bool { return s.kept[pid] })
		if pid == 0 || !proctree.Reap(pid) {
			return
		}
	}
}

// Start starts one worker for each spec. If a worker cannot be executed, Start does not fail: the worker's [Exit]
// says so, and the specs after it are not started. An error means that nothing was started. It is
// [workerlog.ErrLogFile] if a log file cannot be opened.
//
// Once canceled is closed, or [Options.Expired] returns true, no further worker is forked. Workers that were not
// forked have neither a pid nor an Exit; the caller that canceled the start stops the group. canceled may be nil.
func (s *Supervisor) Start(specs []Spec, canceled <-chan struct{}) (*Group, error) {
	s.mu.Lock()
	if s.busy {
		s.mu.Unlock()
		return nil, errors.New("start workers: the previous group has not been stopped")
	}
	s.busy = true
	s.mu.Unlock()

	g, err := s.newGroup(specs)
	if err != nil {
		s.release()
		return nil, err
	}
	s.spawner.do(func() { g.fork(canceled) })
	g.watch()
	return g, nil
}

// release allows the next group to start.
func (s *Supervisor) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = false
}

// newGroup opens the streams of all workers, or none.
func (s *Supervisor) newGroup(specs []Spec) (*Group, error) {
	g := &Group{
		sup:   s,
		exits: make(chan Exit, len(specs)),
		gone:  make(chan struct{}),
	}
	g.openTimeline(specs, func(err error) {
		s.opts.Logger.Warn().Err(err).Msg("the log timeline is incomplete: elasticrun logs cannot order every line by time")
	})
	for _, spec := range specs {
		warn := func(err error) {
			s.opts.Logger.Warn().Int("local_rank", spec.LocalRank).Err(err).Msg("output of a worker is being lost")
		}
		spec.Stdout.Warn, spec.Stderr.Warn = warn, warn
		w := &worker{spec: spec}
		g.workers = append(g.workers, w)
		if err := w.openStreams(s.opts.Console, g.marks); err != nil {
			g.closeStreams()
			return nil, fmt.Errorf("start worker %d: %w", spec.LocalRank, err)
		}
	}
	return g, nil
}

// forkKept forks a worker and records its pid before the orphan reaper can see its exit.
func (s *Supervisor) forkKept(fork func() (int, error)) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pid, err := fork()
	if err == nil {
		s.kept[pid] = true
		s.opts.Suspension.forked(pid)
	}
	return pid, err
}

// reap reaps the given workers and forgets them.
func (s *Supervisor) reap(workers []*worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range workers {
		if w.pid != 0 && s.kept[w.pid] {
			proctree.Reap(w.pid)
			delete(s.kept, w.pid)
			s.opts.Suspension.reaped(w.pid)
		}
	}
}

// leftovers lists the live processes of a job whose workers have been reaped. Each of them is an adopted child or a
// descendant of one, so none is left exactly when no adopted child lives. A scan of all of /proc could not prove that:
// it takes time, and an orphan that changes parents during the scan seems to have no parent. If the scan fails while
// there are children, the result has one entry with the error.
func (s *Supervisor) leftovers() []proctree.Process {
	if proctree.NoChildren() {
		return nil
	}
	adopted, err := s.reapAdopted()
	if err != nil {
		return []proctree.Process{{State: '?', Comm: err.Error()}}
	}
	if len(adopted) == 0 {
		return nil
	}
	known := make(map[int]bool, len(adopted))
	for _, p := range adopted {
		known[p.PID] = true
	}
	return append(adopted, slices.DeleteFunc(liveJob(), func(p proctree.Process) bool { return known[p.PID] })...)
}

// liveJob lists the live processes of the job, as far as /proc shows them.
func liveJob() []proctree.Process {
	all, _ := proctree.Job() // the callers repeat the call
	return slices.DeleteFunc(all, proctree.Process.Dead)
}
