package elastic

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// thisMachine is the network namespace of this boot of this kernel: that is where slots are seen.
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
	return machineOf(host, []string{strings.TrimSpace(string(boot)), network})
}

// takeSlot binds an abstract socket, which needs no folder that all users may write and vanishes with its last
// descriptor; it does not listen, so nobody can connect. Workers do not inherit it (SOCK_CLOEXEC), as else they would
// hold the slot of an agent that is dead. The error is EADDRINUSE where the slot is taken.
func takeSlot(name string) (io.Closer, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a unix socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), "@"+name)
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: "@" + name}); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("bind the unix socket @%s: %w", name, err)
	}
	return f, nil
}
