package peeruid

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// unmappedUser returns the number that the kernel shows for a user that this process's user namespace does not have
// (user_namespaces(7)), or -1 if no peer can have such a user. read is [os.ReadFile].
//
// A user of the namespace can have that number too; then the kernel's answer is ambiguous. It is not if only processes
// of the namespace can be in its network, which ownNetwork reports.
func unmappedUser(read func(string) ([]byte, error), ownNetwork func() bool) int {
	overflow := 65534
	if text, err := read("/proc/sys/kernel/overflowuid"); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			overflow = n
		}
	}
	users, err := read("/proc/self/uid_map")
	if err != nil { // a kernel without user namespaces, or no /proc
		return -1
	}
	for line := range strings.Lines(string(users)) {
		var first, outside, count int
		if _, err := fmt.Sscan(line, &first, &outside, &count); err != nil {
			continue
		}
		if count == math.MaxUint32 || first <= overflow && overflow < first+count && ownNetwork() {
			return -1
		}
	}
	return overflow
}

// ownsNetwork reports whether this process's network namespace belongs to its user namespace. That of a container does,
// unless the container shares the host's network. Processes outside of the user namespace cannot enter such a network
// namespace without privileges in the user namespace.
func ownsNetwork() bool {
	network, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return false
	}
	defer network.Close()
	owner, err := unix.IoctlRetInt(int(network.Fd()), unix.NS_GET_USERNS) // EPERM for an outer user namespace
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(owner) }()
	var theirs, ours unix.Stat_t
	return unix.Fstat(owner, &theirs) == nil && unix.Stat("/proc/self/ns/user", &ours) == nil &&
		theirs.Dev == ours.Dev && theirs.Ino == ours.Ino
}
