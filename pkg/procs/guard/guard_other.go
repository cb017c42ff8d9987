//go:build !linux

package guard

import (
	"errors"
	"fmt"
)

// Run is not supported on this system, which has no child subreaper. It returns [errors.ErrUnsupported].
func Run(Options) (Result, error) {
	return Result{}, fmt.Errorf("start the guard: %w", errors.ErrUnsupported)
}

// Supported reports whether [Run] works on this system.
func Supported() bool { return false }
