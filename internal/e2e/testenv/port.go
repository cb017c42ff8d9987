package testenv

import (
	"net"
	"os"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// FreePort returns a TCP port at which programs of the test can listen, on any address of this machine, as often as
// they like. Until the test ends, the kernel does not give the port to a listener that asks for any free port, or to an
// outgoing connection.
//
// A socket that is bound to the port, but does not listen, reserves it. A program that listens at the port has to set
// SO_REUSEADDR, as Go, Python's create_server and torch do.
func FreePort(t testing.TB) int {
	t.Helper()
	syscall.ForkLock.RLock()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(os.NewSyscallError("socket", err))
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		t.Fatal(os.NewSyscallError("setsockopt", err))
	}
	if err := unix.Bind(fd, new(unix.SockaddrInet4)); err != nil {
		t.Fatal(os.NewSyscallError("bind", err))
	}
	addr, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(os.NewSyscallError("getsockname", err))
	}
	return addr.(*unix.SockaddrInet4).Port
}

// Serve calls handle for each connection to the returned address, for one after another, until the test ends.
func Serve(t testing.TB, handle func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			handle(nc)
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	return l.Addr().String()
}
