package procs

import (
	"os"

	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Spec describes one worker process. Argv and Env are complete: nothing is added.
type Spec struct {
	// LocalRank names the worker within its group.
	LocalRank int
	// Argv is the command; Argv[0] is looked up on PATH unless it has a slash.
	Argv []string
	// Env is the whole environment, as K=V.
	Env []string
	// Dir is the working directory; empty is the launcher's own.
	Dir string
	// Stdin is handed on as it is; nil is the launcher's own.
	Stdin *os.File
	// Stdout and Stderr say where the worker's output goes.
	Stdout, Stderr workerlog.Output
	// CPUs binds the worker to these CPUs; nil leaves it where the launcher is.
	CPUs []int
}
