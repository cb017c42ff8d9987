package procs

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"

	"github.com/elasticrun/elasticrun/pkg/procs/internal/limits"
)

// ResourceError says that the machine lacks a resource that the launcher needs: processes, open files, room in a file
// system, /proc. The job and the program are not at fault.
type ResourceError struct {
	// Problem says in one line what is missing, which limit applies, and what to do.
	Problem string
	// Err is the system's own error.
	Err error
}

func (e *ResourceError) Error() string { return e.Problem }

// Unwrap returns the system's own error.
func (e *ResourceError) Unwrap() error { return e.Err }

// AsResourceError returns err as a [*ResourceError] if its cause is a resource that the machine lacks.
func AsResourceError(err error) (*ResourceError, bool) {
	if lack, ok := errors.AsType[*ResourceError](err); ok {
		return lack, true
	}
	var advice string
	switch {
	case errors.Is(err, syscall.EMFILE):
		advice = limits.OpenFiles()
	case errors.Is(err, syscall.ENFILE):
		advice = "the machine has reached its limit on open files (fs.file-max)"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		advice = "make room; df and df -i show which file system is full"
	case errors.Is(err, syscall.ENOMEM):
		advice = "the machine or this cgroup has no memory left"
	default:
		return nil, false
	}
	return &ResourceError{Problem: fmt.Sprintf("%v: %s", err, advice), Err: err}, true
}

// explainStart adds the limit that was reached, if it can be found, to the error of a failed start of a process.
func explainStart(err error) error {
	if errors.Is(err, syscall.EMFILE) {
		return fmt.Errorf("%w: %s", err, limits.OpenFiles())
	}
	return limits.ExplainFork(err)
}

// CheckRoom returns a [*ResourceError] if a limit on processes and threads has no room for a guard and an agent, of
// which cpus threads run Go code. The number of workers is not known yet. The main program calls it before anything
// makes a thread. Package guard calls it again only in a guard that another guard has started.
func CheckRoom(cpus int) error { return checkRoom(limits.Need{Guard: true, CPUs: cpus}) }

// ReserveThreads makes the threads that every agent needs. [NewSupervisor] adds those for the workers. Threads that
// are made early in a process cost less memory. ReserveThreads returns a [*ResourceError] if a limit has no room for
// them.
func ReserveThreads() error { return reserveForWorkers(0) }

// reserveForWorkers adds the threads for this many workers to those of [ReserveThreads]. It returns a
// [*ResourceError] if a limit has no room for them and for the workers' processes.
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
