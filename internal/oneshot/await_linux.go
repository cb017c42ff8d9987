package oneshot

import "golang.org/x/sys/unix"

// awaitExit waits until a child has exited, and does not reap it. It reports whether it has.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err == nil
		}
	}
}
