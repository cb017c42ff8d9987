package tcplimit

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Control returns a function for net.Dialer.Control that makes the kernel close a connection whose peer acknowledges
// nothing for limit (TCP_USER_TIMEOUT in tcp(7)). limit has a resolution of a millisecond.
func Control(limit time.Duration) func(network, address string, socket syscall.RawConn) error {
	return func(_, _ string, socket syscall.RawConn) error {
		var err error
		control := socket.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
		})
		return errors.Join(control, err)
	}
}
