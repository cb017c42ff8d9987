package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// lockKind is a kind of flock(2) lock.
type lockKind int

const (
	sharedLock    lockKind = syscall.LOCK_SH
	exclusiveLock lockKind = syscall.LOCK_EX
)

// A lock that another store holds is tried again after lockRetryMin, then after pauses that grow to lockRetryMax. A
// thread that blocks in flock could not be interrupted when the context ends.
const (
	lockRetryMin = 50 * time.Microsecond
	lockRetryMax = 2 * time.Millisecond
)

// try takes the lock if that needs no waiting.
func (l lockKind) try(f *os.File) (bool, error) {
	err := flock(f, int(l)|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("flock: %w: %w", kvstore.ErrConnection, err)
	}
	return true, nil
}

// unlock releases a lock of either kind.
func unlock(f *os.File) error {
	if err := flock(f, syscall.LOCK_UN); err != nil {
		return fmt.Errorf("unlock: %w: %w", kvstore.ErrConnection, err)
	}
	return nil
}

func flock(f *os.File, how int) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var errno error
	err = raw.Control(func(fd uintptr) {
		for {
			errno = syscall.Flock(int(fd), how)
			if !errors.Is(errno, syscall.EINTR) {
				return
			}
		}
	})
	return errors.Join(err, errno)
}

// waitForRetry pauses before the lock is tried again, after attempt earlier pauses. It fails if ctx ends or stop is
// closed.
func waitForRetry(ctx context.Context, stop <-chan struct{}, attempt int) error {
	pause := time.NewTimer(min(lockRetryMin<<min(attempt, 16), lockRetryMax))
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-stop:
		return kvstore.ErrClosed
	case <-ctx.Done():
	}
	return fmt.Errorf("wait for the file's lock: %w", kvstore.ContextError(ctx))
}
