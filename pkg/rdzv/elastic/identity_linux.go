package elastic

import (
	"os"
	"strconv"
	"strings"
)

// thisMachine is what a user sees in the network namespace of this boot of this kernel: that is where slots are seen. Slots are a user's own, so another
// user, or one of another user namespace, is told apart as if it had a machine of its own.
//
// The boot id alone will not do, since all containers of a machine share it. /etc/machine-id will not do, since the
// clones of an image, containers among them, share that. A namespace's inode is unique within a boot, and not used again
// while anything, such as a slot's socket, is left of the namespace.
func thisMachine(host string) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(strings.TrimSpace(string(boot))) == 0 {
		return machineOf(host, nil)
	}
	network, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return machineOf(host, nil)
	}
	users, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return machineOf(host, nil)
	}
	return machineOf(host, []string{strings.TrimSpace(string(boot)), network, users, strconv.Itoa(os.Geteuid())})
}
