//go:build !linux

package boottime

import "time"

// start is the origin of Now.
var start = time.Now()

// Now returns the time since the process began; it may stand still while the machine is suspended.
func Now() time.Duration { return time.Since(start) }
