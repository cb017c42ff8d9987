package testenv

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// mountApart calls mount on a new thread with a mount namespace of its own, and returns the path of that thread's root.
// The namespace ends with the test.
func mountApart(t testing.TB, mount func() error) string {
	t.Helper()
	mounted, over := make(chan mountThread), make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() { keepMount(mount, mounted, over) })
	where := <-mounted
	t.Cleanup(func() {
		close(over)
		done.Wait()
	})
	if where.err != nil {
		Missing(t, "needs to mount a file system of its own: %v", where.err)
	}
	return fmt.Sprintf("/proc/%d/task/%d/root", os.Getpid(), where.tid)
}

// keepMount calls mount and keeps its thread, which holds the namespace, until over is closed.
func keepMount(mount func() error, result chan<- mountThread, over <-chan struct{}) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() { // the main thread never ends, and /proc/self shows its namespace
		defer runtime.UnlockOSThread()
		var other sync.WaitGroup
		other.Go(func() { keepMount(mount, result, over) })
		other.Wait()
		return
	}
	// Never unlocked: the thread, and with it the namespace, ends with the goroutine.
	err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err == nil {
		err = mount()
	}
	result <- mountThread{tid: unix.Gettid(), err: err}
	<-over
}

// mountThread is the thread whose namespace has the mount.
type mountThread struct {
	tid int
	err error
}
