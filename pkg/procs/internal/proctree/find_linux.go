package proctree

import (
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Find reads any process from /proc. It finds nothing if /proc does not show this pid namespace.
func Find(pid int) (Process, bool) {
	if pid < 1 || !ProcIsOurs() {
		return Process{}, false
	}
	return Read(pid)
}

// ticksPerSecond is the unit of Process.Start, the same on every architecture that Go supports.
const ticksPerSecond = 100

// StartedBy reports whether the process had been started by t.
func (p Process) StartedBy(t time.Time) bool {
	ticks, err := strconv.ParseInt(p.Start, 10, 64)
	var now unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return false
	}
	age := time.Duration(now.Nano()) - time.Duration(ticks)*(time.Second/ticksPerSecond)
	return age >= time.Since(t) // Start is rounded down, and so makes p older
}
