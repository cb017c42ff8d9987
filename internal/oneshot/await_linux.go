package oneshot

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent makes the kernel kill a program when the thread that starts it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// awaitExit waits until a child has exited, without reaping it. It reports whether that worked.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err == nil
		}
	}
}
