//go:build !linux

package proctree

import (
	"errors"
	"syscall"
	"time"
)

// Without a subreaper, descendants that leave their session are out of reach.

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

func HasExited(int) bool                                { return false }
func IsEnding(int) bool                                 { return false }
func Reap(int) bool                                     { return true }
func NoChildren() bool                                  { return true }
func FirstDeadOrphan(func(int) bool) int                { return 0 }
func AdoptedChildren(func(int) bool) ([]Process, error) { return nil, nil }
func ReadChild(int) (Process, bool)                     { return Process{}, false }
func Job() ([]Process, error)                           { return nil, nil }
func (Process) Signal(syscall.Signal)                   {}
func DescribeStuck([]Process) []string                  { return nil }
func ProcIsOurs() bool                                  { return true }
func Sweep(time.Duration) (int, []string)               { return 0, nil }
