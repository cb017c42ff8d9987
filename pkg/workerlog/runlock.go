package workerlog

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// An active run has its folder locked (flock). The kernel releases the lock when the launcher exits, however it
// exits, and a lock leaves no file behind.

// lockFolder locks the folder of a run until the file is closed. It returns nil if the file system does not support
// locks, as some network file systems do not.
func lockFolder(path string) *os.File {
	dir, err := os.Open(path)
	if err != nil {
		return nil
	}
	if err := flock(dir, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = dir.Close()
		return nil
	}
	return dir
}

// RunActive reports whether the run with this folder is still active. An error means that the file system cannot
// tell.
func RunActive(path string) (bool, error) {
	dir, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer dir.Close() // which releases the lock
	err = flock(dir, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// AwaitRunEnd blocks until the run with this folder has ended. Nothing can interrupt it.
func AwaitRunEnd(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return flock(dir, unix.LOCK_EX)
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}
