//go:build !linux

package guard

import "time"

// SetExitNotice does nothing: there is no guard on this system.
func (l *Lifeline) SetExitNotice([]byte) error { return nil }

// SetRecord does nothing: there is no guard on this system.
func (l *Lifeline) SetRecord([]byte) error { return nil }

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
