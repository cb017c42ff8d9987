//go:build !linux

package procs

import (
	"errors"
	"syscall"
	"time"
)

func forkWorker(path string, w *worker) (pid int, err error) {
	if w.spec.CPUs != nil {
		return 0, errors.New("binding to CPUs is not supported on this system")
	}
	return w.forkExec(path, &syscall.SysProcAttr{Setsid: true})
}

func preferForOOM(int) {}

// Sweep does nothing on this system.
func Sweep(time.Duration) {}

// CloseOnExecInherited does nothing on this system.
func CloseOnExecInherited() {}

// SetProcessName does nothing on this system.
func SetProcessName(string) {}
