package jobs

import (
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// path returns the path of a file in f.
func (f *folder) path(name string) string { return filepath.Join(f.Name(), name) }

// peerOf returns the process at the other end.
func peerOf(c syscall.RawConn) (p peer, err error) {
	p.uid = -1
	controlErr := c.Control(func(fd uintptr) {
		var cred *unix.Xucred
		if cred, err = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED); err != nil {
			return
		}
		p.uid = int(cred.Uid)
		p.pid, err = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	})
	if controlErr != nil {
		err = controlErr
	}
	return p, err
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
