//go:build !linux

package guard

import (
	"errors"
	"time"
)

// ErrUnsupported says that this system has no child subreaper, which a guard needs.
var ErrUnsupported = errors.New("start the guard: not supported on this system")

// Run is not supported here; the program runs the agent itself.
func Run(*Lifeline, func(time.Duration)) (Result, error) { return Result{}, ErrUnsupported }

// Supported reports whether [Run] works on this system.
func Supported() bool { return false }
