package machine

import (
	"os"
	"strconv"
	"strings"
)

// thisMachine returns a name for the scope in which slots are visible: one user, in one network namespace, during one
// boot of the kernel. Slots belong to a user, so another user, or a user of another user namespace, counts as another
// machine.
//
// The boot id alone does not suffice, since all containers of a machine share it. /etc/machine-id does not suffice,
// since clones of an image share it, containers among them. A namespace's inode is unique within a boot. It is not
// reused while anything of the namespace, such as a slot's socket, exists.
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
