package jobs

import (
	"fmt"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// path returns the path of a file in f. It leads into the folder that was opened, even if its name has changed since.
func (f *folder) path(name string) string {
	return filepath.Join(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), name)
}

// peerUID returns the user id of the process at the other end.
func peerUID(c syscall.RawConn) (uid int, err error) {
	uid = -1
	controlErr := c.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			uid = int(cred.Uid)
		}
	})
	if controlErr != nil {
		err = controlErr
	}
	return uid, err
}
