package procs

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"

	"github.com/elasticrun/elasticrun/pkg/procs/internal/limits"
)

// ResourceError says that the machine lacks something that the launcher needs, or has used it up: processes, open files,
// room in a file system, /proc. Nothing is wrong with the job or with the program.
type ResourceError struct {
	// Problem says what is missing, which limit says so, and what to do, in one line.
	Problem string
	// Err is the system's own error.
	Err error
}

func (e *ResourceError) Error() string { return e.Problem }

// Unwrap returns the system's own error.
func (e *ResourceError) Unwrap() error { return e.Err }

// AsResourceError finds out whether the machine lacks what err was about, and says so.
func AsResourceError(err error) (*ResourceError, bool) {
	if lack, ok := errors.AsType[*ResourceError](err); ok {
		return lack, true
	}
	var advice string
	switch {
	case errors.Is(err, syscall.EMFILE):
		advice = limits.OpenFiles()
	case errors.Is(err, syscall.ENFILE):
		advice = "the machine has as many as it may (fs.file-max)"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		advice = "make room; df and df -i show which file system has none"
	case errors.Is(err, syscall.ENOMEM):
		advice = "the machine, or this cgroup, has no memory left"
	default:
		return nil, false
	}
	return &ResourceError{Problem: fmt.Sprintf("%v: %s", err, advice), Err: err}, true
}

// explainStart says what is missing where a process could not be started, as far as that can be seen.
func explainStart(err error) error {
	if errors.Is(err, syscall.EMFILE) {
		return fmt.Errorf("%w: %s", err, limits.OpenFiles())
	}
	return limits.ExplainFork(err)
}

// CheckRoom returns a [*ResourceError] where a limit on processes and threads has no room for a guard and an agent, of
// which cpus threads run Go code. A guard calls it before anything that takes a thread. The workers are not known yet.
// Package guard calls it only below another guard.
func CheckRoom(cpus int) error { return checkRoom(limits.Need{Guard: true, CPUs: cpus}) }

// ReserveThreads makes the threads that any agent needs. [NewSupervisor] makes those for the workers. Early in a process
// they cost less memory. It returns a [*ResourceError] where a limit has no room for them.
func ReserveThreads() error { return reserveForWorkers(0) }

// reserveForWorkers adds the threads for so many workers to those of [ReserveThreads]. It returns a [*ResourceError]
// where a limit has no room for them and for the workers' processes.
func reserveForWorkers(workers int) error {
	cpus := runtime.GOMAXPROCS(0)
	if err := checkRoom(limits.Need{CPUs: cpus, Workers: workers}); err != nil {
		return err
	}
	limits.ReserveThreads(limits.AgentThreads(cpus, workers))
	return nil
}

func checkRoom(need limits.Need) error {
	if problem := need.Check(); problem != "" {
		return &ResourceError{Problem: problem, Err: syscall.EAGAIN}
	}
	return nil
}
