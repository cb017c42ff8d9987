package topology

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
)

// Owner says who holds a TCP port, as far as this user can see. Its String is one line for an error message.
type Owner struct {
	Port int
	// State is the kernel's name for the state of the socket that holds the port, LISTEN as a rule.
	// "" if no such socket was seen; Addr, UID, PID and Command are then unset too.
	State string
	// Addr is the local address the socket is bound to.
	Addr netip.Addr
	// UID is the user who owns the socket.
	UID int
	// PID is the process that has the socket open, the lowest if several have; 0 if none is visible: it is
	// another user's, or outside this PID namespace.
	PID int
	// Command is that process's command line, shortened; "" if it could not be read.
	Command string
}

// PortOwner finds who keeps a TCP port of a local address, or, where addr is not valid, of any, from being bound: who holds
// the same port of another address does not count. It is meant for the
// moment after bind has answered "address already in use". The error is set only when the kernel's
// socket table exists and cannot be read; a system without such a table gives an Owner with no State.
func PortOwner(addr netip.Addr, port int) (Owner, error) {
	return portOwner(os.DirFS("/proc"), addr, port)
}

// portOwner looks in proc, the root of a procfs.
func portOwner(proc fs.FS, addr netip.Addr, port int) (Owner, error) {
	owner := Owner{Port: port}
	var holders []socket
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		text, err := fs.ReadFile(proc, table)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return owner, fmt.Errorf("find who holds port %d: %w", port, err)
		}
		for _, s := range parseSockets(string(text)) {
			if int(s.local.Port()) == port && conflict(addr, s.local.Addr()) {
				holders = append(holders, s)
			}
		}
	}
	if len(holders) == 0 {
		return owner, nil
	}
	holder := slices.MinFunc(holders, func(a, b socket) int { return cmp.Compare(a.weight(), b.weight()) })
	owner.State = holder.state
	owner.Addr = holder.local.Addr()
	owner.UID = holder.uid
	owner.PID = socketHolder(proc, holder.inode)
	owner.Command = command(proc, owner.PID)
	return owner, nil
}

// Listens tells that the port is listened on, and not only used for a connection.
func (o Owner) Listens() bool { return o.State == listening }

// String returns one line such as "port 29500 is held by pid 1234 (python3 train.py)".
func (o Owner) String() string {
	switch {
	case o.State == "":
		// A socket that is bound and not yet listening is in no table.
		return fmt.Sprintf("port %d is held by a process that the system does not name", o.Port)
	case o.State == timeWait:
		return fmt.Sprintf("port %d is not free yet: a connection that was closed in the last minute still blocks it", o.Port)
	case o.PID == 0:
		return fmt.Sprintf("port %d is held by uid %d's process, which this user cannot see%s", o.Port, o.UID, o.purpose())
	case o.Command == "":
		return fmt.Sprintf("port %d is held by pid %d%s", o.Port, o.PID, o.purpose())
	}
	return fmt.Sprintf("port %d is held by pid %d (%s)%s", o.Port, o.PID, o.Command, o.purpose())
}

// purpose says what a port is used for when it is not, as usual, listened on.
func (o Owner) purpose() string {
	if o.State == listening {
		return ""
	}
	return fmt.Sprintf(", for a connection in state %s", o.State)
}
