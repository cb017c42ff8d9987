//go:build !linux

package workerlog

import (
	"errors"
	"fmt"
)

// FileWatch is not supported on this system.
type FileWatch struct{}

// WatchFiles returns [errors.ErrUnsupported].
func WatchFiles([]string) (*FileWatch, error) {
	return nil, fmt.Errorf("watch files: %w on this system", errors.ErrUnsupported)
}

// Written returns nil.
func (*FileWatch) Written() <-chan string { return nil }

// Close does nothing.
func (*FileWatch) Close() {}
