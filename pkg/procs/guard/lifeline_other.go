//go:build !linux

package guard

import (
	"errors"
	"time"
)

// SetExitNotice does nothing: there is no guard on this system.
func (l *Lifeline) SetExitNotice([]byte) error { return nil }

// SetRecord fails: there is no guard on this system.
func (l *Lifeline) SetRecord([]byte) error { return errors.ErrUnsupported }

// SetDeadline does nothing: there is no guard on this system.
func (l *Lifeline) SetDeadline(time.Duration) {}

// ConfirmSuspended does nothing: there is no guard on this system.
func (l *Lifeline) ConfirmSuspended(SuspendRequest, int) {}

// DeadlinePassed returns false.
func (l *Lifeline) DeadlinePassed() bool { return false }

type watchdog struct{}

func (*watchdog) open(int)      {}
func (*watchdog) acknowledged() {}
func (*watchdog) close()        {}
