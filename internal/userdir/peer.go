package userdir

import (
	"net"
	"os"
)

// Trusted reports whether this user's processes cooperate with a process of that user. Only this user and root are
// trusted.
func Trusted(uid int) bool { return uid == 0 || uid == os.Geteuid() }

// PeerUID returns the user of the process at the other end of c, as it was when that process connected or began to
// listen.
func PeerUID(c *net.UnixConn) (uid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	if controlErr := raw.Control(func(fd uintptr) { uid, err = peerUID(int(fd)) }); controlErr != nil {
		return -1, controlErr
	}
	return uid, err
}
