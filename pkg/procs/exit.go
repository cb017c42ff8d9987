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

// Exit codes for commands that could not be executed, as shells use them.
const (
	CodeNotExecutable = 126
	CodeNotFound      = 127
)

// Exit tells how one worker ended.
type Exit struct {
	LocalRank int
	PID       int // 0 where the worker could not be started
	// Code is the exit code; 126 or 127 where StartErr is set, 0 where Signal is.
	Code int
	// Signal killed the worker; 0 where it exited by itself.
	Signal syscall.Signal
	// CoreDumped says that the signal left a core file or would have.
	CoreDumped bool
	// At is when the launcher saw it.
	At time.Time
	// Stopped says that the worker was still running when the launcher began
	// to stop its group: it is a victim, not a cause.
	Stopped bool
	// StartErr is why the worker could not be executed.
	StartErr error
}

// Success reports whether the worker exited with 0.
func (e Exit) Success() bool { return e.Code == 0 && e.Signal == 0 }

// Unexecutable reports whether the worker could not be executed for a reason that lasts: the program, or the interpreter that
// it names, is missing, may not be executed by this user, or is no program. A lack of processes or memory, a program that is
// being written, and a disk that fails may pass.
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

// PythonCode is the exit code as Python's multiprocessing and torchrun count it:
// negative for a signal.
func (e Exit) PythonCode() int {
	if e.Signal != 0 {
		return -int(e.Signal)
	}
	return e.Code
}

// ShellCode is the exit code as shells count it: 128+n for signal n.
func (e Exit) ShellCode() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Code
}

// String describes the end in words.
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

// SignalName returns a signal's symbolic name, as SIGTERM.
func SignalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", int(sig))
}

// awaitExit blocks until the child pid has exited. On Linux it leaves it a zombie.
func awaitExit(pid int) Exit {
	status, err := proctree.AwaitExit(pid)
	switch {
	case err != nil:
		// Somebody else reaped our child: its status is lost.
		return Exit{Code: 1, StartErr: err}
	case status.Signaled():
		return Exit{Signal: status.Signal(), CoreDumped: status.CoreDump()}
	default:
		return Exit{Code: status.ExitStatus()}
	}
}

// startExit is the exit of a worker that could not be executed.
func startExit(localRank int, err error, at time.Time) Exit {
	code := CodeNotExecutable
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		code = CodeNotFound
	}
	return Exit{LocalRank: localRank, Code: code, At: at, StartErr: err}
}
