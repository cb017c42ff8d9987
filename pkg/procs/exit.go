package procs

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// Exit codes of commands that could not be executed, as in shells.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

// Exit says how one worker ended.
type Exit struct {
	LocalRank int
	PID       int // 0 if the worker could not be started
	// Code is the exit code. It is 126 or 127 if StartErr is set, and 0 if Signal is set.
	Code int
	// Signal is the signal that killed the worker, or 0 if the worker exited.
	Signal syscall.Signal
	// CoreDumped says that the signal dumped a core, or would have if core files were allowed.
	CoreDumped bool
	// At is when the launcher saw the exit.
	At time.Time
	// Stopped says that the worker was still running when the launcher began to stop its group, so its exit alone says
	// nothing about a fault.
	Stopped bool
	// StartErr is why the worker could not be executed.
	StartErr error
}

// Success reports whether the worker exited with code 0.
func (e Exit) Success() bool { return e.Code == 0 && e.Signal == 0 }

// Unexecutable reports whether the worker could not be executed for a permanent reason: the program, or the
// interpreter that it names, is missing, may not be executed by this user, or is not a program. Temporary reasons are
// a lack of processes or memory, a program file that is being written, and a failing disk.
func (e Exit) Unexecutable() bool {
	for _, lasting := range []error{
		exec.ErrNotFound, fs.ErrNotExist, fs.ErrPermission, syscall.ENOEXEC, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP,
		syscall.ENAMETOOLONG, syscall.E2BIG,
	} {
		if errors.Is(e.StartErr, lasting) {
			return true
		}
	}
	return false
}

// PythonCode returns the exit code as Python's multiprocessing and torchrun report it: negative for a signal.
func (e Exit) PythonCode() int {
	if e.Signal != 0 {
		return -int(e.Signal)
	}
	return e.Code
}

// ShellCode returns the exit code as shells report it: 128+n for signal n.
func (e Exit) ShellCode() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Code
}

// String describes the exit in words.
func (e Exit) String() string {
	switch {
	case e.StartErr != nil:
		return fmt.Sprintf("could not be executed: %v", e.StartErr)
	case e.Signal != 0:
		return fmt.Sprintf("killed by signal %d (%s)", int(e.Signal), SignalName(e.Signal))
	default:
		return fmt.Sprintf("exited with code %d", e.Code)
	}
}

// SignalName returns the symbolic name of sig, such as SIGTERM.
func SignalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", int(sig))
}

// awaitExit blocks until the child pid has exited. On Linux it leaves the child a zombie.
func awaitExit(pid int) Exit {
	status, err := proctree.AwaitExit(pid)
	switch {
	case err != nil:
		// Another caller reaped the child, so its status is lost.
		return Exit{Code: 1, StartErr: err}
	case status.Signaled():
		return Exit{Signal: status.Signal(), CoreDumped: status.CoreDump()}
	default:
		return Exit{Code: status.ExitStatus()}
	}
}

// startExit returns the exit of a worker that could not be executed.
func startExit(localRank int, err error, at time.Time) Exit {
	code := codeNotExecutable
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		code = codeNotFound
	}
	return Exit{LocalRank: localRank, Code: code, At: at, StartErr: err}
}
