package transport

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAcceptedGiveUp reads from the kernel how long it keeps a connection whose peer acknowledges nothing.
func TestAcceptedGiveUp(t *testing.T) {
	ln := listen(t)
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	accepted, err := newSockets(ln, 1500*time.Millisecond).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	raw, err := accepted.(*socket).Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var limit int
	failed := raw.Control(
		func(fd uintptr) { limit, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) },
	)
	if failed != nil || err != nil || limit != 1500 {
		t.Errorf("got %d ms, %v, %v; want 1500 ms", limit, err, failed)
	}
}
