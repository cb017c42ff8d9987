package jobs

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// path returns the path of a file in f.
func (f *folder) path(name string) string { return filepath.Join(f.Name(), name) }

// peerPID returns the process at the other end of a socket; 0 if it is unknown.
func peerPID(fd int) int {
	pid, err := unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	if err != nil {
		return 0
	}
	return pid
}

// readProcess returns the parent and the user of a process; -1 as its user if it is unknown.
func readProcess(pid int) (parent, uid int) {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0, -1
	}
	return int(p.Eproc.Ppid), int(p.Eproc.Ucred.Uid)
}

// stopped is SSTOP of sys/proc.h.
const stopped = 4

// IsStopped reports whether a process is stopped by a signal, as after Ctrl-Z.
func IsStopped(pid int) bool {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	return err == nil && p.Proc.P_stat == stopped
}
