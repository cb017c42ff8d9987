package procs

import "github.com/elasticrun/elasticrun/pkg/workerlog"

// Spec describes one worker process. Argv and Env are complete: nothing is added to them. Its stdin and its working
// directory are the launcher's own.
type Spec struct {
	// LocalRank identifies the worker within its group.
	LocalRank int
	// Argv is the command. Argv[0] is looked up on PATH unless it has a slash.
	Argv []string
	// Env is the whole environment, as K=V.
	Env []string
	// Stdout and Stderr say where the worker's output goes.
	Stdout, Stderr workerlog.Output
	// CPUs binds the worker to these CPUs. Nil means the launcher's own CPUs.
	CPUs []int
}
