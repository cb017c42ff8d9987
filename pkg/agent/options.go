package agent

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Options configure an [Agent].
type Options struct {
	Spec WorkerSpec
	// Rendezvous and Launcher must not be nil. Nil LogFolders means that workers write no files.
	Rendezvous Rendezvous
	Launcher   Launcher
	LogFolders LogFolders
	// Env is the environment of the workers; torch's variables are set over it.
	Env []string
	// Events takes the stream of events, each event once. It must not block. Samples of usage come from a goroutine of
	// their own. Nil discards the events.
	Events events.Sink
	// Usage samples the workers every 5 s into Events. Nil samples nothing.
	Usage UsageSampler
	// Liveness looks for signs of life of the workers, which the rendezvous learns. Nil looks for none.
	Liveness Liveness
	// StepPattern finds the number of a training step in a line of the workers' output: in its first group, or else in the
	// whole match. Nil looks for none.
	StepPattern *regexp.Regexp
	// WorkerDir is a folder on a local disk for the files through which workers and agent talk; see [HeartbeatEnv]. Empty
	// means that workers have no such files.
	WorkerDir string
	// Kernel answers why a worker was killed, and which state workers are in before a stop. Nil leaves both unknown.
	Kernel Kernel
	// Devices answers whether a restart must wait for the devices that the workers held. Nil never waits.
	Devices Devices
	// Stacks shows where workers are: before SIGKILL, when ErrorExitTimeout has passed, and when some have been done for
	// ProgressAfter while others still run. Nil shows nothing. A ProgressAfter of 0 is [DefaultProgressAfter].
	Stacks        Stacks
	ProgressAfter time.Duration
	// Fitness checks this machine after a worker of its own has failed and the workers are stopped. If the machine is not
	// fit, the agent leaves the job and Run returns an [*UnfitError]. Nil checks nothing.
	Fitness Fitness
	// RestartWindow means that only restarts within a time window are charged. Then Spec.MaxRestarts does not show
	// which failure is the last one.
	RestartWindow bool
	// Forward delivers signals that are passed on to the workers without any other consequence. It may be nil.
	Forward <-chan os.Signal
	// KillNow is closed when there is no time left for a grace: the current or next stop uses SIGKILL. It may be nil.
	KillNow <-chan struct{}
	// ShutdownTimeout is the time between a signal and SIGKILL if the launcher received a stop signal or the job has
	// ended. RestartGrace is that time for every other stop, after which the job may go on.
	ShutdownTimeout, RestartGrace time.Duration
	// ExitBarrierTimeout is how long a node whose workers have all exited with 0 waits for the others before it ends with
	// success. 0 is DefaultExitBarrierTimeout; below 0, the node does not wait. The rendezvous may keep a node on which
	// others depend for longer ([rdzv.NeededError]).
	ExitBarrierTimeout time.Duration
	// ErrorExitTimeout is how long a worker that has written its error file may take to end before it counts as failed; 0
	// is forever. ErrorFiles watches the files. Nil watches none.
	ErrorExitTimeout time.Duration
	ErrorFiles       FileWatcher
	// UninterruptibleTimeout is how long a worker may stay in an uninterruptible sleep in the kernel before it counts as
	// failed, without a restart; 0 is forever. Kernel must not be nil then.
	UninterruptibleTimeout time.Duration
	// Timers keeps the timers of workers. When a timer expires, its worker gets the signal that it has chosen. Nil keeps
	// none.
	Timers Timers
	// Preempt receives when this node is about to be taken away: the rendezvous then preempts the job on all nodes. The
	// agent uses only Signal and By. It may be nil.
	Preempt <-chan rdzv.Preemption
	// PreemptGrace is how long workers may then take to save; all nodes of the job have the same. PreemptNotice is the
	// time from a receive on Preempt until this node is taken away, and Deadline is when it is taken away in any case.
	// Both shorten the grace, and are unknown if zero.
	PreemptGrace, PreemptNotice time.Duration
	Deadline                    time.Time
	// Logger is the launcher's own log. The zero value discards.
	Logger zerolog.Logger
}

// validate returns an error that says which option cannot be used, or nil.
func (o *Options) validate() error {
	negative := func(option string, d time.Duration) error {
		return fmt.Errorf("agent: Options.%s is %v: must not be negative", option, d)
	}
	switch {
	case o.Rendezvous == nil:
		return errors.New("agent: Options.Rendezvous is nil")
	case o.Launcher == nil:
		return errors.New("agent: Options.Launcher is nil")
	case o.ShutdownTimeout < 0:
		return negative("ShutdownTimeout", o.ShutdownTimeout)
	case o.RestartGrace < 0:
		return negative("RestartGrace", o.RestartGrace)
	case o.ErrorExitTimeout < 0:
		return negative("ErrorExitTimeout", o.ErrorExitTimeout)
	}
	return o.Spec.Validate()
}
