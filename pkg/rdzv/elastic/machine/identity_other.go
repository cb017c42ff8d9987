//go:build !linux

package machine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// thisMachine returns a name for the scope in which slots are visible: one user's temporary folder during one boot.
func thisMachine(host string) string {
	boot, err := syscall.Sysctl("kern.bootsessionuuid")
	if err != nil || boot == "" {
		return machineOf(host, nil)
	}
	return machineOf(host, []string{boot, strconv.Itoa(os.Getuid()), os.TempDir()})
}

// TakeSlot takes a slot by locking a file. The file is never removed: removing it could break the lock of another
// process that has just opened it. Workers do not inherit the lock, since package os opens files close-on-exec. The
// error is EADDRINUSE if the slot is taken.
func TakeSlot(name string) (io.Closer, error) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("elasticrun-%d-%s.lock", os.Getuid(), shortHash(name)))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock file: %w", err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			err = syscall.EADDRINUSE
		}
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
}
