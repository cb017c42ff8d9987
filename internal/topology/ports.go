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

// Owner is the holder of a TCP port, as far as it is visible to this user. Its String is one line for an error message.
type Owner struct {
	Port int
	// State is the kernel's name for the state of the socket that holds the port, usually LISTEN. If no such socket was
	// found, State is "", and Addr, UID, PID and Command are not set.
	State string
	// Addr is the local address the socket is bound to.
	Addr netip.Addr
	// UID is the user who owns the socket.
	UID int
	// PID is the process that has the socket open, the lowest if there are several. It is 0 if the process belongs to
	// another user or is outside this PID namespace.
	PID int
	// Command is that process's command line, shortened; "" if it could not be read.
	Command string
}

// PortOwner finds the process that prevents bind from using a TCP port of a local address. If addr is not valid, it
// looks at all addresses. Call it after bind has failed with "address already in use". It fails only if the kernel's
// socket table exists and cannot be read. On a system without such a table the Owner has no State.
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

// Listens reports whether the socket that holds the port listens. Otherwise it has a connection, or was not found.
func (o Owner) Listens() bool { return o.State == listening }

// String returns one line such as "port 29500 is held by pid 1234 (python3 train.py)".
func (o Owner) String() string {
	switch {
	case o.State == "":
		// The table does not contain a socket that is bound but not yet listening.
		return fmt.Sprintf("port %d is held by an unknown process", o.Port)
	case o.State == timeWait:
		return fmt.Sprintf("port %d is not free yet: a connection that was closed in the last minute still blocks it", o.Port)
	case o.PID == 0:
		return fmt.Sprintf("port %d is held by uid %d's process, which this user cannot see%s", o.Port, o.UID, o.purpose())
	case o.Command == "":
		return fmt.Sprintf("port %d is held by pid %d%s", o.Port, o.PID, o.purpose())
	}
	return fmt.Sprintf("port %d is held by pid %d (%s)%s", o.Port, o.PID, o.Command, o.purpose())
}

// purpose describes the use of a port that is not used to listen.
func (o Owner) purpose() string {
	if o.State == listening {
		return ""
	}
	return fmt.Sprintf(", for a connection in state %s", o.State)
}
