package procs

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// Sweep kills and reaps all descendants of this process until none is left or timeout is over. It is the last resort of
// an agent whose guard has died, because another caller that waits for one of these processes loses its exit status.
func Sweep(timeout time.Duration) { _, _ = proctree.Sweep(timeout) }

// CloseOnExecInherited marks the descriptors beyond stdin, stdout and stderr that this process inherited as
// close-on-exec. So its children do not get them, as torchrun's workers do not.
func CloseOnExecInherited() {
	if unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	entries, err := os.ReadDir("/proc/self/fd") // before Linux 5.11
	if err != nil {
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// SetProcessName sets the name that ps and killall show. The agent's name differs from the guard's, so that killall
// with either name leaves the other process to clean up.
func SetProcessName(name string) {
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0)
}
