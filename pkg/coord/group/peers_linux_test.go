package group

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A member gives up a connection on which nothing is acknowledged. Otherwise a member that was cut off for a minute
// might get no frame for another minute.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	nc, err := connectTCP(t.Context(), ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	raw, err := nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var limit int
	failed := raw.Control(func(fd uintptr) {
		limit, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	})
	if failed != nil || err != nil || time.Duration(limit)*time.Millisecond != ackTimeout {
		t.Errorf("the kernel keeps it for %d ms, %v, %v; want %v", limit, failed, err, ackTimeout)
	}
}
