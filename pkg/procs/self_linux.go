package procs

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// Sweep kills and reaps all descendants of this process, until none is left or bound is over. It is for an agent whose guard has died and that cannot
// end its job in any other way: who waits for one of these processes loses its exit status.
func Sweep(bound time.Duration) { _, _ = proctree.Sweep(bound) }

// CloseOnExecInherited keeps descriptors that this process inherited beyond the
// standard three from its children, as torchrun's workers do not get them either.
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

// SetProcessName sets the name that ps and killall show. The agent's differs from the
// guard's, so that killing either by name leaves the other to clean up.
func SetProcessName(name string) {
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0)
}
