//go:build !linux

package procs

import (
	"errors"
	"time"
)

// ErrNoGuard says that this system has no child subreaper, which a guard needs.
var ErrNoGuard = errors.New("start the guard: not supported on this system")

// Guard is not supported here; the program runs the agent itself.
func Guard(*Lifeline, func(time.Duration)) (GuardResult, error) { return GuardResult{}, ErrNoGuard }

// CanGuard reports whether [Guard] works on this system.
func CanGuard() bool { return false }
