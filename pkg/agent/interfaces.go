package agent

import (
	"context"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/evidence"
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
	ProcessTree() map[int]bool
	Tail(localRank int) []string
	LastLine(localRank int) string
	Signal(sig syscall.Signal)
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
}

// Devices answers who holds the devices of this machine.
type Devices interface {
	// InUse names those of the processes that use a device. An error says that the devices cannot be asked.
	InUse(ctx context.Context, pids map[int]bool) ([]string, error)
}

// Fitness checks whether this machine is fit for the job.
type Fitness interface {
	// Check returns why the machine is not fit, or nil. It returns soon after ctx ends.
	Check(ctx context.Context) error
}
