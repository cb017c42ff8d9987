package transport

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// giveUpAfter lets the kernel give up a connection whose peer's kernel takes nothing, and answers nothing, for so long. gRPC does the same, but only
// with a bare socket.
func giveUpAfter(limit time.Duration) func(network, address string, socket syscall.RawConn) error {
	return func(_, _ string, socket syscall.RawConn) error {
		var err error
		control := socket.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
		})
		return errors.Join(control, err)
	}
}
