package proctree

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Sweep kills and reaps all Descendants. ECHILD is the proof that none is left; what is after bound is told.
func Sweep(bound time.Duration) (swept int, stuck []string) {
	exited := make(chan os.Signal, 1)
	signal.Notify(exited, syscall.SIGCHLD)
	defer signal.Stop(exited)
	for deadline := time.Now().Add(bound); ; {
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
		all, _ := All() // tried again until the deadline
		left := append(Descendants(os.Getpid(), all, func(Process) bool { return true }), hiddenChildren()...)
		if time.Now().After(deadline) {
			if len(left) == 0 {
				return swept, []string{"children that cannot be found"}
			}
			return swept, DescribeStuck(left)
		}
		for _, p := range left {
			p.Signal(syscall.SIGKILL)
		}
		select {
		case <-exited:
		case <-time.After(KillInterval): // a child may have been forked during the look
		}
	}
}
