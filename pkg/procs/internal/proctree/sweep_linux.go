package proctree

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Sweep kills and reaps all descendants of this process until none is left, which ECHILD proves, or until timeout is
// over. It returns how many it reaped, and a description of those that are left.
func Sweep(timeout time.Duration) (swept int, stuck []string) {
	exited := make(chan os.Signal, 1)
	signal.Notify(exited, syscall.SIGCHLD)
	defer signal.Stop(exited)
	for deadline := time.Now().Add(timeout); ; {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return swept, nil
		case pid > 0:
			swept++
			continue
		}
		all, _ := All() // repeated until the deadline
		left := append(Descendants(os.Getpid(), all, func(Process) bool { return true }), hiddenChildren()...)
		if time.Now().After(deadline) {
			if len(left) == 0 {
				return swept, []string{"children that /proc does not show"}
			}
			return swept, DescribeStuck(left)
		}
		for _, p := range left {
			p.Signal(syscall.SIGKILL)
		}
		select {
		case <-exited:
		case <-time.After(KillInterval): // a child may have been forked during the scan
		}
	}
}
