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
	var conn *net.UDPConn
	err := h.within(func() (err error) {
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(h.Addr), Port: port})
		return err
	})
	if err != nil {
		h.lab.t.Fatalf("listen on %s: %v", h.Name, err)
	}
	return conn
}

// within calls open in the host's network namespace. A socket that open makes stays there.
func (h *Host) within(open func() error) error {
	opened := make(chan error)
	go func() { opened <- h.enter(open) }()
	return <-opened
}

// enter moves its thread into the host's namespace and leaves the thread locked, so that the thread ends with the
// goroutine and no other goroutine uses it. The main thread must stay outside: it never ends, and /proc shows its
// namespace as that of the process. On the main thread enter starts another goroutine and keeps the main thread busy
// meanwhile.
func (h *Host) enter(open func() error) error {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		defer runtime.UnlockOSThread()
		return h.within(open)
	}
	namespace, err := os.Open(filepath.Join(namespaceDir, h.namespace))
	if err != nil {
		return err
	}
	defer namespace.Close()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter its namespace: %w", err)
	}
	return open()
}
