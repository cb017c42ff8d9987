package safefile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// isOpenElsewhere reports whether somebody else has the file open. Linux grants a lease for writing, which is given
// back at once, only if nobody has (fcntl(2)). It is false where there are no leases, as with NFS.
func isOpenElsewhere(f *os.File) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	elsewhere := false
	_ = raw.Control(func(fd uintptr) {
		_, err := unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_WRLCK)
		if elsewhere = errors.Is(err, unix.EAGAIN); err == nil {
			_, _ = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK)
		}
	})
	return elsewhere
}
