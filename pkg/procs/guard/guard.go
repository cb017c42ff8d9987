package guard

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs"
)

// Options configure [Run]. The zero value is usable.
type Options struct {
	// Lifeline is this process's own link to a guard above it, or nil. When it breaks, Run kills the child.
	Lifeline *Lifeline
	// OnDeadline is called each time that Run kills workers because the agent let its deadline pass; see
	// [Lifeline.SetDeadline]. after is the time that the agent had set. OnDeadline may be nil, and may block.
	OnDeadline func(after time.Duration)
	// OnSuspend is called before Run stops this process because of SIGTSTP, when the agent has stopped the job's
	// processes. OnContinue is called after this process was continued, unless the agent has ended. Both may be nil, and
	// may block.
	OnSuspend  func(workers int)
	OnContinue func()

	// ExitTimeout is how long an agent that has announced its exit may take to vanish. 0 means 10 s.
	ExitTimeout time.Duration
	// SweepTimeout limits the sweep after the agent's exit. A process that survives SIGKILL for so long is in
	// uninterruptible sleep or held by a debugger. 0 means 30 s.
	SweepTimeout time.Duration
	// ShortSweepTimeout replaces SweepTimeout if the agent has already waited for such a process. 0 means 5 s.
	ShortSweepTimeout time.Duration
}

// Result says how the guarded agent ended.
type Result struct {
	// Exit is how the agent's process ended.
	Exit procs.Exit
	// ExitAnnounced says that the agent announced its exit code before it exited. An agent that did not was killed or
	// crashed, whatever its exit code is.
	ExitAnnounced bool
	// Swept is the number of processes that the guard reaped after the agent's exit.
	Swept int
	// Stuck names processes that survived SIGKILL, and where in the kernel they are.
	Stuck []string
	// ExitNotice is what the agent gave to [Lifeline.SetExitNotice] last. It proves that nothing of the job is left: it
	// is nil if Stuck names processes, or if the agent withdrew it.
	ExitNotice []byte
	// Record is what the agent gave to [Lifeline.SetRecord] last; nil for none. It is nil if Stuck names processes.
	Record []byte
	// StuckReported says that the agent had reported such processes itself.
	StuckReported bool
}
