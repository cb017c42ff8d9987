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

// isSealed reports whether the open file is on a read-only mount of a file system in memory. The kubelet provides the
// files of a Secret in this way, and systemd a service's credentials. Whoever made such a mount decided who can see it.
// Its modes say little: the group of a Secret's files is the pod's own (fsGroup), and the group's bits of a credential
// are the mask of an ACL that admits the service's user.
func isSealed(f *os.File) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	var at unix.Statfs_t
	var statErr error
	err = raw.Control(func(fd uintptr) { statErr = unix.Fstatfs(int(fd), &at) })
	return err == nil && statErr == nil && sealedMount(at.Type, at.Flags)
}

// sealedMount judges a mount by what statfs says about it: the type of its file system and the flags of the mount.
func sealedMount(fsType, flags int64) bool {
	const readOnly = unix.MS_RDONLY // statfs(2) calls it ST_RDONLY
	return (fsType == unix.TMPFS_MAGIC || fsType == unix.RAMFS_MAGIC) && flags&readOnly != 0
}
