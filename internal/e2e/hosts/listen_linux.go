package hosts

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// ListenUDP opens a UDP socket on the host for a server in the test process. The caller closes it.
func (h *Host) ListenUDP(port int) *net.UDPConn {
	h.lab.t.Helper()
	opened := make(chan socket)
	go func() { opened <- h.listenUDP(port) }()
	s := <-opened
	if s.err != nil {
		h.lab.t.Fatalf("listen on %s: %v", h.Name, s.err)
	}
	return s.conn
}

// socket is the result of opening a socket.
type socket struct {
	conn *net.UDPConn
	err  error
}

// listenUDP moves its thread into the host's namespace and leaves the thread locked, so that the thread ends with the
// goroutine and no other goroutine uses it. The main thread must stay outside: it never ends, and /proc shows its
// namespace as that of the process. On the main thread listenUDP starts another goroutine and keeps the main thread
// busy meanwhile.
func (h *Host) listenUDP(port int) socket {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		defer runtime.UnlockOSThread()
		opened := make(chan socket)
		go func() { opened <- h.listenUDP(port) }()
		return <-opened
	}
	namespace, err := os.Open(filepath.Join(namespaceDir, h.namespace))
	if err != nil {
		return socket{nil, err}
	}
	defer namespace.Close()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		return socket{nil, fmt.Errorf("enter its namespace: %w", err)}
	}
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(h.Addr), Port: port})
	return socket{conn, err}
}
