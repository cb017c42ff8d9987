package jobs

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestOtherUser checks that an Entry does not serve another user, even if the modes of files would let it.
func TestOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	f := Folders{t.TempDir()}
	e := register(t, f, Launcher{})
	defer e.Close()
	socket := filepath.Join(userFolder(f), e.name+socketSuffix)
	must(t, errors.Join(
		os.Chmod(f[0], 0o755), os.Chmod(filepath.Dir(f[0]), 0o755), os.Chmod(userFolder(f), 0o711), os.Chmod(socket, 0o666),
	))
	accepted := make(chan net.Conn, 1)
	go func() {
		if c, err := e.Accept(); err == nil {
			_ = c.Close()
			accepted <- c
		}
		close(accepted)
	}()
	got := make(chan error, 1)
	go func() {
		defer close(got)
		const other = 65534
		testenv.AsUser(t, other, func() {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				err = unix.Connect(fd, &unix.SockaddrUnix{Name: socket})
			}
			if err == nil {
				_, err = unix.Read(fd, make([]byte, 1)) // it returns when the other end is closed
			}
			got <- err
		})
	}()
	if err := <-got; err != nil {
		t.Error(err)
	}
	must(t, e.Close())
	if c := <-accepted; c != nil {
		t.Error("the connection of another user was accepted")
	}
}
