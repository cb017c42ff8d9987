package procs

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Options configure a [Supervisor].
type Options struct {
	// Console shows the workers' output; nil shows nothing.
	Console *workerlog.Console
	// Workers is how many workers a group has at most: the threads to attend to them are made beforehand.
	Workers int
	// Track makes groups remember whom they stop, for [Group.ProcessTree]. It costs one look at
	// all of /proc a stop.
	Track bool
	// Expired is asked before each worker is forked; true means that none may be started any more. Nil never says so. It is for
	// a process that was stopped in the middle of a start, and does not know yet what happened meanwhile.
	Expired func() bool
	// Logger is the launcher's own log; the zero value discards.
	Logger zerolog.Logger
}

// foreignProc says what is worse where /proc shows no process of this pid namespace.
const foreignProc = "/proc is missing or belongs to another pid namespace: elasticrun signals only its own children, so what workers " +
	"leave behind ends one generation after another, which may take seconds, and neither CPU nor memory of workers is measured; " +
	"mount /proc anew (unshare --mount-proc)"

// Supervisor starts worker groups, one after another.
type Supervisor struct {
	opts    Options
	spawner *spawner

	sigchld chan os.Signal
	reaped  chan struct{} // receives after orphans may have been reaped; merges
	done    chan struct{}

	mu   sync.Mutex
	kept map[int]bool // pids of workers that only their group may reap
	busy bool         // a group is live
}

// NewSupervisor makes this process a child subreaper and starts the goroutines
// that fork workers and reap adopted orphans. Close it when its last group has been stopped. It returns a [*ResourceError]
// where there is no room for its threads.
func NewSupervisor(opts Options) (*Supervisor, error) {
	if err := reserveForWorkers(opts.Workers); err != nil {
		return nil, err
	}
	if err := proctree.BecomeSubreaper(); err != nil {
		return nil, fmt.Errorf("become child subreaper: %w", err)
	}
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

// reapOrphans takes the exit status of adopted processes, as init would have
// done, whenever the kernel says that some child ended.
func (s *Supervisor) reapOrphans() {
	defer close(s.done)
	for range s.sigchld {
		if proctree.ProcIsOurs() {
			_, _ = s.reapAdopted() // what could not be seen now is tried again at a stop
		} else {
			s.reapFirst()
		}
		select {
		case s.reaped <- struct{}{}:
		default:
		}
	}
}

// reapAdopted reaps what was adopted and has exited, and returns the adopted
// children that live. It holds the lock meanwhile, so that a worker forked just now
// is not mistaken for an orphan, and so that the kernel's lists of children
// only grow while they are read.
//
// There is a list for each thread, so one look is no snapshot: a child that dies
// in the middle hands its own children to a list that was read already. But then
// it is seen dead, and where one was, another look is due. So an empty answer
// means that no adopted child lived when the last look began.
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

// reapFirst reaps adopted children that have exited, as far as the kernel shows them first. Where /proc is not ours a
// look at all children is too slow for each SIGCHLD; the rest is reaped at a stop.
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

// Start starts one worker for each spec. A worker that cannot be executed does
// not make Start fail: its Exit says so, and the specs after it are not started.
// An error means that nothing was started; [workerlog.ErrLogFile] is for the lack of a log file.
//
// Workers that are not forked yet when over is closed, or when [Options.Expired] says so, are not started, and have neither a
// pid nor an Exit: whoever ended the round has the group stopped. over may be nil.
func (s *Supervisor) Start(specs []Spec, over <-chan struct{}) (*Group, error) {
	s.mu.Lock()
	if s.busy {
		s.mu.Unlock()
		return nil, errors.New("start workers: the group before has not been stopped")
	}
	s.busy = true
	s.mu.Unlock()

	g, err := s.newGroup(specs)
	if err != nil {
		s.release()
		return nil, err
	}
	s.spawner.do(func() { g.fork(over) })
	g.watch()
	return g, nil
}

// release lets the next group start.
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
		s.opts.Logger.Warn().Err(err).Msg("elasticrun logs will not know when every line was written")
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

// forkKept marks the pid as a worker's before anybody else can see its exit.
func (s *Supervisor) forkKept(fork func() (int, error)) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pid, err := fork()
	if err == nil {
		s.kept[pid] = true
	}
	return pid, err
}

// reap takes the exit status of the workers given and forgets them.
func (s *Supervisor) reap(workers []*worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range workers {
		if w.pid != 0 && s.kept[w.pid] {
			proctree.Reap(w.pid)
			delete(s.kept, w.pid)
		}
	}
}

// leftovers lists what lives of a job whose workers have been reaped. Every such
// process is an adopted child or below one, so there is none exactly when no
// adopted child lives. A look at all of /proc could not tell: it takes time, and
// an orphan that changes parents meanwhile seems to belong to nobody. Where
// nothing can be seen there is an entry that says so, as long as there are children.
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

// liveJob lists the job's processes that live, as far as they can be seen.
func liveJob() []proctree.Process {
	all, _ := proctree.Job() // the callers look again and again
	return slices.DeleteFunc(all, proctree.Process.Dead)
}
