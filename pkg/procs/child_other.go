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

// Sweep does nothing here.
func Sweep(time.Duration) {}

// SealDescriptors does nothing here.
func SealDescriptors() {}

// NameProcess does nothing here.
func NameProcess(string) {}
