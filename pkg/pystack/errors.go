package pystack

import (
	"errors"
	"fmt"
)

// ErrExited says that the process has ended, or that its pid belongs to another process by now.
var ErrExited = errors.New("the process has ended")

// ErrReplaced says that the process runs another program by now: it called execve after [Open]. Open reads the new
// program.
var ErrReplaced = errors.New("the process runs another program")

// ErrNoInterpreter says that the process has Python's code and no interpreter: Python starts, or it ends.
var ErrNoInterpreter = errors.New("the process has no Python interpreter yet, or none any more")

// ErrUnreadable says that no thread of the process could be read, because its memory was never in a state that makes
// sense. It passes where the process was too busy, and stays where its data lies elsewhere than in the releases of its
// version.
var ErrUnreadable = errors.New("the memory of the process does not make sense")

// UnsupportedError says why the stacks of a process cannot be read at all, so that another attempt is useless.
type UnsupportedError struct {
	// Reason is a clause, such as "python 3.8 is older than 3.9".
	Reason string
	// Err is the error of the system where one is the reason, such as EPERM; otherwise nil.
	Err error
}

// Error returns the reason, and the system's error if there is one.
func (e *UnsupportedError) Error() string {
	if e.Err == nil {
		return e.Reason
	}
	return fmt.Sprintf("%s: %v", e.Reason, e.Err)
}

// Unwrap returns the error of the system.
func (e *UnsupportedError) Unwrap() error {
	return e.Err
}

// unsupported returns an UnsupportedError with a formatted reason.
func unsupported(format string, args ...any) error {
	return &UnsupportedError{Reason: fmt.Sprintf(format, args...)}
}

// errTorn says that what was read contradicts itself, usually because the process changed it meanwhile.
var errTorn = errors.New("torn read")
