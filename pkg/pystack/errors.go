package pystack

import (
	"errors"
	"fmt"
)

// ErrExited says that the process has ended. Another process may have its pid by now.
var ErrExited = errors.New("the process has ended")

// ErrReplaced says that the process called execve after [Open], so it runs another program. Call Open again for that.
var ErrReplaced = errors.New("the process runs another program")

// ErrNoInterpreter says that the process has Python's code but no interpreter: Python is starting or ending.
var ErrNoInterpreter = errors.New("the process has no Python interpreter yet, or none any more")

// ErrUnreadable says that no thread of the process could be read, because its memory never made sense. If the process
// was too busy, another attempt may succeed. If its data lies elsewhere than in the releases of its version, none does.
var ErrUnreadable = errors.New("the memory of the process does not make sense")

// UnsupportedError says why the stacks of a process can never be read.
type UnsupportedError struct {
	// Reason is a clause, such as "python 3.8 is older than 3.9".
	Reason string
	// Err is the system's error, such as EPERM; nil if the reason is another one.
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

// errTorn says that the data contradicts itself, usually because the process changed it during the read.
var errTorn = errors.New("torn read")
