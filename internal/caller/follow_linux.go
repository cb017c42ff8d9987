package caller

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// follow asks the kernel for SIGTERM at the death of the parent. The kernel forgets the request when the thread that
// made it ends, so the goroutine, which is the main one, keeps its thread. A parent that has ended before shows by
// another parent.
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
