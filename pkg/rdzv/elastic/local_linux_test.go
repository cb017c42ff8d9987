package elastic

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Another user is not served, even if the modes of files would let it connect.
func TestLocalOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	l, socket := newLocalAgents(t)
	if _, err := l.open(socket); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(socket)
	if err := errors.Join(
		os.Chmod(socket, 0o777), os.Chmod(dir, 0o777), os.Chmod(filepath.Dir(dir), 0o755), //nolint:gosec // that is the point
	); err != nil {
		t.Fatal(err)
	}
	err := asOtherUser(func() error {
		c, err := net.Dial("unix", socket)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			return errors.New("the connection of another user was not closed")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// asOtherUser calls f as another user. The thread ends with its goroutine, so that no other goroutine is that user.
func asOtherUser(f func() error) (err error) {
	var call func()
	var done sync.WaitGroup
	call = func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() { // the main thread never ends, and /proc shows its user
			defer runtime.UnlockOSThread()
			var another sync.WaitGroup
			another.Go(call)
			another.Wait()
			return
		}
		const other = 65534
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, other, other, other); errno != 0 {
			err = errno
			return
		}
		err = f()
	}
	done.Go(call)
	done.Wait()
	return err
}
