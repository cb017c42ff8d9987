//go:build !linux

package transport

import (
	"syscall"
	"time"
)

// giveUpAfter does nothing outside Linux, where only the keep-alive pings detect a lost peer.
func giveUpAfter(time.Duration) func(network, address string, socket syscall.RawConn) error {
	return func(_, _ string, _ syscall.RawConn) error { return nil }
}
