package jobs

import (
	"context"
	"net"
	"os"
)

// FindPID returns the pid of a launcher, for people who send a signal to it; 0 if it is unknown. The record of another
// user may name any process, so the pid of that user's launcher comes from the kernel.
func (r Running) FindPID(ctx context.Context) int {
	if r.UID == os.Geteuid() {
		return r.PID
	}
	c, err := r.Dial(ctx)
	if err != nil {
		return 0
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	server := 0
	if err := raw.Control(func(fd uintptr) { server = peerPID(int(fd)) }); err != nil {
		return 0
	}
	return provenPID(r.PID, server, r.UID, readProcess)
}

// provenPID returns the pid of a launcher whose record names the process recorded, and whose socket is served by the
// process server: an agent, or the parent that the user started. It returns 0 rather than the pid of another user.
func provenPID(recorded, server, uid int, read func(pid int) (parent, uid int)) int {
	parent, owner := read(server)
	if server <= 0 || owner != uid {
		return 0
	}
	if recorded == parent {
		if _, owner := read(parent); owner == uid {
			return parent
		}
	}
	return server
}
