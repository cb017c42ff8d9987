//go:build !linux

package proctree

import (
	"errors"
	"syscall"
	"time"
)

// Without a subreaper, descendants that leave their session are out of reach. So there are no adopted children to find,
// and most functions do nothing.

// BecomeSubreaper does nothing.
func BecomeSubreaper() error { return nil }

// AwaitExit blocks until the child pid has exited, and reaps it.
func AwaitExit(pid int) (syscall.WaitStatus, error) {
	for {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
			return status, err
		}
	}
}

// HasExited returns false.
func HasExited(int) bool { return false }

// IsEnding returns false.
func IsEnding(int) bool { return false }

// Reap returns true: AwaitExit reaps.
func Reap(int) bool { return true }

// NoChildren returns true.
func NoChildren() bool { return true }

// FirstDeadOrphan returns 0.
func FirstDeadOrphan(func(int) bool) int { return 0 }

// AdoptedChildren returns no process.
func AdoptedChildren(func(int) bool) ([]Process, error) { return nil, nil }

// ReadChild returns false.
func ReadChild(int) (Process, bool) { return Process{}, false }

// SignalHandler knows nothing.
func SignalHandler(int, syscall.Signal) (handler int, ok bool) { return 0, false }

// Find finds nothing.
func Find(int) (Process, bool) { return Process{}, false }

// StartedBy returns true.
func (Process) StartedBy(time.Time) bool { return true }

// Job returns no process.
func Job() ([]Process, error) { return nil, nil }

// Signal does nothing.
func (Process) Signal(syscall.Signal) {}

// DescribeStuck returns nothing.
func DescribeStuck([]Process) []string { return nil }

// ProcIsOurs returns true.
func ProcIsOurs() bool { return true }

// Sweep does nothing.
func Sweep(time.Duration) (int, []string) { return 0, nil }
