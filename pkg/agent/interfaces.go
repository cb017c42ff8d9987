package agent

import (
	"context"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/goodput"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Rendezvous is the part of rdzv.Handler that the agent needs.
type Rendezvous interface {
	Backend() string
	RunID() string
	NextRendezvous(ctx context.Context, self rdzv.Member) (*rdzv.Round, error)
	Stops() <-chan rdzv.Stop
	Stopped()
	Fail(f rdzv.Failure)
	Succeed(ctx context.Context, barrier time.Duration) (*rdzv.Stop, error)
	// Quiet reports that no worker of this node shows a sign of life, or with nil that one does again. It does not block.
	Quiet(q *rdzv.Quiet)
	// Started, Stepped and Used are for the account of the workers' time: see rdzv.Handler.
	Started()
	Stepped(s rdzv.Steps)
	Used() (used *goodput.Goodput, final bool)
	// Preempt asks for the preemption of the whole job. It does not block for long.
	Preempt(p rdzv.Preemption)
	Leave()
}

// Launcher starts worker processes. [ProcessLauncher] is one.
type Launcher interface {
	// Start starts workers. Workers that have not started when over is closed do not start, and have no pid.
	Start(specs []procs.Spec, over <-chan struct{}) (Processes, error)
}

// ProcessLauncher is the [Launcher] that starts processes of this machine.
type ProcessLauncher struct{ *procs.Supervisor }

// Start implements [Launcher]. It never returns a nil *procs.Group as a non-nil interface.
func (l ProcessLauncher) Start(specs []procs.Spec, over <-chan struct{}) (Processes, error) {
	g, err := l.Supervisor.Start(specs, over)
	if err != nil {
		return nil, err
	}
	return g, nil
}

// Processes is a set of workers that was started. *procs.Group implements it.
type Processes interface {
	Exits() <-chan procs.Exit
	PIDs() map[int]int
	HaveExited() bool
	Member(pid int, before time.Time) (procs.Member, error)
	ProcessTree() map[int]bool
	Tail(localRank int) []string
	LastLine(localRank int) string
	Signal(sig syscall.Signal)
	SignalHandlers(sig syscall.Signal, signaled map[int]bool) (all bool)
	Stop(policy procs.StopPolicy) error
	WaitOutput(ctx context.Context) bool
	Drain(ctx context.Context) error
}

// LogFolders makes the log paths of one start of the group.
type LogFolders interface {
	// Optional reports whether the job goes on if the paths cannot be made.
	Optional() bool
	Attempt(restarts, round int, membershipChange bool) (*workerlog.Attempt, error)
}

// UsageSampler measures workers and their descendants.
type UsageSampler interface {
	Sample(pids map[int]int) map[int]procs.Usage
}

// Liveness looks for signs of life of the workers.
type Liveness interface {
	// Run watches the workers until ctx ends. It calls changed when no worker has shown a sign for long, and with nil when
	// one does again.
	Run(ctx context.Context, workers []WatchedWorker, changed func(*rdzv.Quiet))
}

// WatchedWorker is a worker that was started, and what is known of its progress.
type WatchedWorker struct {
	LocalRank, PID int
	// Output returns how many bytes the worker has written through pipes. Files are those to which it writes itself.
	Output func() int64
	Files  []string
	// Step returns the last step that [Options].StepPattern has found in the output; ok is false if there is none. It is
	// nil without a pattern.
	Step func() (step int64, ok bool)
	// Heartbeat is the file that the worker may touch; empty if it has none.
	Heartbeat string
}

// FileWatcher notifies when files are written.
type FileWatcher interface {
	// Watch begins to watch for the first bytes of the files at paths. Their folders must exist. A file that already has
	// some counts as written. An error says what is not watched.
	Watch(paths []string) (FileWatch, error)
}

// FileWatch is a set of watched files.
type FileWatch interface {
	// Written receives the path of each file once. It buffers all of them, and is never closed.
	Written() <-chan string
	// Close ends the watch.
	Close()
}

// Timers keeps the timers that workers set for themselves. Its methods may be called while timers expire.
type Timers interface {
	// Expired receives after Take has got something to return.
	Expired() <-chan struct{}
	// Take returns the processes, of any program, that have let timers expire since the last call.
	Take() []TimerExpiry
	// Reset forgets all timers.
	Reset()
}

// Kernel answers what the kernel knows about workers. *evidence.Machine implements it. The agent abandons a call that
// hangs, and may make other calls meanwhile.
type Kernel interface {
	Memory() evidence.Memory
	// Mark makes Log skip what was logged so far.
	Mark()
	// Log returns what was logged since the last Mark or Log.
	Log() evidence.KernelLog
	Core(pid int, sig syscall.Signal, since time.Time) string
	// State returns the state of a running process, as in proc(5); 0 if unknown.
	State(pid int) byte
	// Switches returns how often a process has left a CPU; 0 if unknown.
	Switches(pid int) uint64
}

// Stacks says where workers are. The agent asks only when something takes long.
type Stacks interface {
	// Show shows people, under a title, the stacks of those workers of this node that still run; nil means of all local
	// ranks. It returns in a few words where the first of them is, such as "in save, train.py:54"; "" if none runs. It
	// returns soon after ctx ends.
	Show(ctx context.Context, title string, localRanks []int) (where string)
	// ShowProgress shows people in one line which workers of this node have finished and where the others are. With
	// elsewhere, all workers of this node have finished, and it asks the other nodes. It returns soon after ctx ends.
	ShowProgress(ctx context.Context, elsewhere bool)
}

// Devices finds out which processes hold the devices of this machine.
type Devices interface {
	// InUse names the processes among pids that use a device. An error means that this cannot be determined.
	InUse(ctx context.Context, pids map[int]bool) ([]string, error)
}

// Fitness checks whether this machine is fit for the job.
type Fitness interface {
	// Check returns why the machine is not fit, or nil. It returns soon after ctx ends.
	Check(ctx context.Context) error
}
