package procs

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
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
		advice = openFilesLimit()
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

// openFiles is the limit on a process's open files; 0 where it is not known.
func openFiles() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return limit.Cur
}

func openFilesLimit() string {
	return fmt.Sprintf("a process may have %d open files (ulimit -n), and elasticrun needs %d and %d for each worker; raise the limit",
		openFiles(), leastOpenFiles, workerOpenFiles)
}

// How many files a launcher has open: for itself, at least, and for each worker.
const (
	leastOpenFiles  = 20
	workerOpenFiles = 4
)

// checkOpenFiles returns a [*ResourceError] where the launcher may not have the files open that it needs for itself:
// with fewer the Go runtime ends the program.
func checkOpenFiles() error {
	if n := openFiles(); n == 0 || n >= leastOpenFiles {
		return nil
	}
	return &ResourceError{Problem: openFilesLimit(), Err: syscall.EMFILE}
}

// explainStart says what is missing where a process could not be started, as far as that can be seen.
func explainStart(err error) error {
	if errors.Is(err, syscall.EMFILE) {
		return fmt.Errorf("%w: %s", err, openFilesLimit())
	}
	return explainFork(err)
}

// agentNotStarted is the error of a guard that could not start this program again.
func agentNotStarted(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &ResourceError{Problem: "start the agent: there is no /proc/self/exe: /proc is not mounted, or belongs to another pid namespace; mount it", Err: err}
	case errors.Is(err, syscall.EAGAIN):
		return &ResourceError{Problem: fmt.Sprintf("start the agent: %v", explainFork(err)), Err: err}
	default:
		return fmt.Errorf("start the agent: %w", err)
	}
}
