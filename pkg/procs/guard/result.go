package guard

import "github.com/elasticrun/elasticrun/pkg/procs"

// Result tells how the guarded agent ended.
type Result struct {
	// Exit is how the agent's process ended.
	Exit procs.Exit
	// ExitAnnounced says that the agent announced its exit code before it ended. One
	// that did not was killed or crashed, whatever its exit code is.
	ExitAnnounced bool
	// Swept counts the processes the guard reaped after the agent's end.
	Swept int
	// Stuck names processes that survived SIGKILL, and where in the kernel they are.
	Stuck []string
	// ExitNotice is what the agent gave to [Lifeline.SetExitNotice] last. It is nil if the agent withdrew it, and if Stuck
	// names processes: that it is there proves that nothing of the job is left.
	ExitNotice []byte
	// StuckReported says that the agent had reported such processes itself.
	StuckReported bool
}
