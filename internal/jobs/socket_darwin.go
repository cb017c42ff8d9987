package jobs

import (
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// path returns the path of a file in f.
func (f *folder) path(name string) string { return filepath.Join(f.Name(), name) }

// peerUID returns the user id of the process at the other end.
func peerUID(c syscall.RawConn) (uid int, err error) {
	uid = -1
	controlErr := c.Control(func(fd uintptr) {
		var cred *unix.Xucred
		if cred, err = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED); err == nil {
			uid = int(cred.Uid)
		}
	})
	if controlErr != nil {
		err = controlErr
	}
	return uid, err
}
