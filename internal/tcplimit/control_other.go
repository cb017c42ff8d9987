//go:build !linux

package tcplimit

import (
	"syscall"
	"time"
)

// Control returns a function that does nothing: only Linux has such a limit.
func Control(time.Duration) func(network, address string, socket syscall.RawConn) error {
	return func(_, _ string, _ syscall.RawConn) error { return nil }
}
