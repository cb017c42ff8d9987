package boottime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since the machine was started, including the time it was suspended (CLOCK_BOOTTIME).
func Now() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // every kernel since 2.6.39 has this clock
	return time.Duration(ts.Nano())
}
