package testenv

import (
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// OnThread calls f on a thread that ends with f, so that f may change the thread's user or namespaces. It is never the
// main thread: that one does not end, and /proc shows its user.
func OnThread(f func()) {
	var done sync.WaitGroup
	done.Go(func() {
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			f()
			return
		}
		defer runtime.UnlockOSThread()
		OnThread(f)
	})
	done.Wait()
}

// AsUser calls f on a thread of another user. It needs root.
func AsUser(t testing.TB, uid int, f func()) {
	t.Helper()
	Root(t)
	OnThread(func() {
		u := uintptr(uid)
		// The function of package syscall would change every thread.
		if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, u, u, u); errno != 0 {
			t.Error("setresuid:", errno)
			return
		}
		f()
	})
}
