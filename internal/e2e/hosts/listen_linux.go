package hosts

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// ListenUDP opens a socket on the host, for a server within the test itself. The test closes it.
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

// socket is one that has been opened, or why it has not.
type socket struct {
	conn *net.UDPConn
	err  error
}

// listenUDP has the thread that it runs on enter the host's namespace. It leaves the thread locked, so that this ends with the goroutine and no
// other one gets there. It must not be the main thread, which does not end, and by which the namespace of the whole process is known: while that
// is kept busy another one is found.
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
