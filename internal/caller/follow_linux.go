package caller

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// follow asks the kernel to send SIGTERM when the parent dies. The kernel forgets the request when the thread that made
// it ends, so the goroutine, which is the main one, keeps its thread. If the caller had died before the request, this
// process has another parent by now.
func follow(pid int) error {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0); err != nil {
		return fmt.Errorf("follow the caller: prctl: %w", err)
	}
	if os.Getppid() != pid {
		return &GoneError{PID: pid}
	}
	return nil
}
