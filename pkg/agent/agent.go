package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/report"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Rendezvous is what the agent needs of an rdzv.Handler.
type Rendezvous interface {
	Backend() string
	RunID() string
	NextRendezvous(ctx context.Context, self rdzv.Member) (*rdzv.Round, error)
	Stops() <-chan rdzv.Stop
	Stopped()
	Fail(f rdzv.Failure)
	Succeed(ctx context.Context) (*rdzv.Stop, error)
	Leave()
}

// Launcher starts worker processes.
type Launcher interface {
	// Start starts workers. Those that are not started yet when over is closed are not, and have no pid.
	Start(specs []procs.Spec, over <-chan struct{}) (Processes, error)
}

// Processes is a started set of workers; *procs.Group is the real one.
type Processes interface {
	Exits() <-chan procs.Exit
	PIDs() map[int]int
	ProcessTree() map[int]bool
	Tail(localRank int) []string
	Signal(sig syscall.Signal)
	Stop(l procs.StopPolicy) error
	WaitOutput(ctx context.Context) bool
	Drain(ctx context.Context) error
}

// LogFolders makes the log paths of one start of the group.
type LogFolders interface {
	// Optional says that the job goes on without where they cannot be made.
	Optional() bool
	Attempt(restarts, round int, membershipChange bool) (*workerlog.Attempt, error)
}

// UsageSampler measures workers and their descendants.
type UsageSampler interface {
	Sample(pids map[int]int) map[int]procs.Usage
}

// FileWatcher tells when files are written.
type FileWatcher interface {
	// Watch begins to watch for the first bytes of the files at paths, whose folders exist. Those that have some already
	// count. An error says what is not watched.
	Watch(paths []string) (FileWatch, error)
}

// FileWatch is files that are watched.
type FileWatch interface {
	// Written receives the path of each file once. It holds them all without a reader and is never closed.
	Written() <-chan string
	// Close ends the watch.
	Close()
}

// Kernel tells what the kernel knows of workers; evidence.Machine is the real one. A call that hangs is given up: others may be made meanwhile.
type Kernel interface {
	Memory() evidence.Memory
	// Mark makes Log forget what was logged so far.
	Mark()
	// Log returns what was logged since the last Mark or Log.
	Log() evidence.KernelLog
	Core(pid int, sig syscall.Signal, since time.Time) string
}

// States tells what the machine knows of processes that run; evidence.Machine is the real one.
type States interface {
	// State is that of a process, as in proc(5); 0 where it is not known.
	State(pid int) byte
}

// Options are what an [Agent] is made of.
type Options struct {
	Spec       WorkerSpec
	Rendezvous Rendezvous
	Launcher   Launcher
	LogFolders LogFolders
	// Env is the environment that workers get beneath torch's variables.
	Env []string
	// Events takes the stream of events, each once. It must not block. Samples of usage come from a goroutine of their
	// own. Nil discards the events.
	Events events.Sink
	// Usage samples workers every 5 s into Events; nil samples nothing.
	Usage UsageSampler
	// Kernel is asked why a worker was killed; nil asks nobody.
	Kernel Kernel
	// States is asked what workers do that are about to be stopped; nil asks nobody.
	States States
	// Devices tells when a restart need no longer wait for what the workers held; nil for at once.
	Devices Devices
	// Fitness is asked, once the workers are stopped, before this node goes on after a failure of one of its own; where it is not fit the agent leaves
	// and ends with an [*UnfitError]. Nil asks nobody. ForgetsRestarts says that Spec.MaxRestarts does not tell which failure is the last, as restarts
	// are forgotten in time.
	Fitness         Fitness
	ForgetsRestarts bool
	// Forward delivers signals that are passed on to the workers without any
	// other consequence; may be nil.
	Forward <-chan os.Signal
	// Hurry is closed when there is no time left for a grace: a stop that is under
	// way or comes next uses SIGKILL. It may be nil.
	Hurry <-chan struct{}
	// ShutdownTimeout is how long workers have to obey a signal before SIGKILL when the
	// launcher is told to stop, RestartGrace when the group is stopped for another
	// reason and the job may go on.
	ShutdownTimeout, RestartGrace time.Duration
	// ErrorExitTimeout is how long a worker that has written its error file may take to end before it counts as failed; 0
	// is for ever. ErrorFiles watches the files; nil watches none.
	ErrorExitTimeout time.Duration
	ErrorFiles       FileWatcher
	// Logger is the launcher's own log; the zero value discards.
	Logger zerolog.Logger
}

// SignalError is the cause with which the context of [Agent.Run] ends when the
// launcher was told to stop: workers get the same signal.
type SignalError struct{ Signal syscall.Signal }

func (e *SignalError) Error() string { return "received " + procs.SignalName(e.Signal) }

// Agent runs one worker group. Make it with [New], call Run once.
type Agent struct {
	opts     Options
	hostname string
	log      zerolog.Logger

	// Owned by the goroutine in Run.
	started    time.Time
	restarts   int         // of the job that were charged, as of the last round
	round      *rdzv.Round // the last; nil before the first
	halt       *rdzv.Stop  // why the workers of the round must stop; nil while they may run
	failures   map[int]Failure
	failedAt   time.Time            // when its first worker failed; zero for none
	processes  Processes            // nil while none run
	unread     Processes            // stopped, with output that the console has not taken yet; nil for none
	running    int                  // workers that have not exited yet
	done       bool                 // all workers of the round have exited with 0
	left       []procs.Exit         // workers of the round that have exited with 0 while others ran
	files      []workerlog.LogFiles // by local rank, of the current start
	scene      scene                // of the current start
	membership bool                 // the current round was not begun by a charged restart
	stuck      *procs.Exit          // what the agent made of a worker of the round that does not end; nil for none
	history    history
	family     map[int]bool   // pids of the group that was stopped last
	devices    *deviceWait    // what the next start waits for; nil for the first
	deviceless bool           // there is no asking for devices
	unwatched  bool           // there is no watching of error files
	closing    sync.WaitGroup // of watches

	mu    sync.Mutex
	group WorkerGroup // written by Run under mu, read by anybody
	shown Processes   // started last, running or not; nil for none; as group
}

// New validates the options and makes an agent.
func New(opts Options) (*Agent, error) {
	if err := opts.Spec.Validate(); err != nil {
		return nil, err
	}
	if opts.ShutdownTimeout < 0 || opts.RestartGrace < 0 || opts.ErrorExitTimeout < 0 {
		return nil, errors.New("agent: a timeout or a grace is negative")
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("find the host name: %w", err)
	}
	a := &Agent{
		opts: opts, hostname: host, log: opts.Logger, group: newWorkerGroup(opts.Spec),
	}
	a.group.State = Init
	return a, nil
}

// WorkerGroup returns a copy of the worker group, as get_worker_group of torch's SimpleElasticAgent does. It may be
// called at any time.
func (a *Agent) WorkerGroup() WorkerGroup {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.group.clone()
}

// Run runs the group until the job has succeeded or failed, and returns which. It stops the workers and returns an
// error wrapping the context's cause when ctx ends: with a [*SignalError] workers get that signal and the
// shutdown timeout, else SIGKILL. Any other error is a rendezvous that could not be formed or was lost
// ([rdzv.ErrRendezvous]), a process that does not die ([*procs.StuckError]), a log folder that could not be written, or
// a defect; the last three leave the group Unknown. With an error the result only holds this node's failures of the
// last round. Whatever Run returns, no worker is left but those that the error names.
func (a *Agent) Run(ctx context.Context) (RunResult, error) {
	a.started = time.Now()
	defer a.closing.Wait()
	result, err := a.loop(ctx)
	took := time.Since(a.started)
	if err != nil {
		a.opts.Rendezvous.Leave()
		if p := a.processes; p != nil {
			a.emit(events.Event{Kind: events.KindStop, Why: report.Begin(err.Error(), maxEventText)})
			err = errors.Join(err, a.stop(ctx, a.ladder(ctx)))
			a.emitRemainingExits(p)
		}
	}
	a.drain(ctx, err == nil && result.State == Succeeded, err)
	if err != nil {
		if a.state() != Unknown {
			err = errors.Join(err, a.setState(endState(err)))
		}
		a.history.end(endOf(err), err.Error(), nil)
		a.emitRun(took, err)
		return RunResult{State: a.state(), Failures: atFault(byThemselves(a.failures), err), Restarts: a.restarts}, err
	}
	a.emitResults(result)
	a.emitRun(took, nil)
	return result, nil
}

func (a *Agent) state() WorkerState {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.group.State
}

// setState moves the group; a move that transitions forbids leaves it Unknown.
func (a *Agent) setState(to WorkerState) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var err error
	a.group.State, err = next(a.group.State, to)
	return err
}

// endState is what a group is left in when the run ends with err.
func endState(err error) WorkerState {
	var told *SignalError
	if errors.As(err, &told) || errors.Is(err, rdzv.ErrRendezvous) || errors.As(err, new(*UnfitError)) {
		return Stopped
	}
	return Unknown
}
