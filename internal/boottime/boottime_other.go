//go:build !linux

package boottime

import "time"

// start is the origin of Now.
var start = time.Now()

// Now returns the time since the process began. The clock may stop while the machine is suspended.
func Now() time.Duration { return time.Since(start) }
