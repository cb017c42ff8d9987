//go:build !linux

package guard

import "time"

// SetExitNotice does nothing here, where no guard runs.
func (l *Lifeline) SetExitNotice([]byte) error { return nil }

// SetDeadline does nothing here.
func (l *Lifeline) SetDeadline(time.Duration) {}

// DeadlinePassed reports false here.
func (l *Lifeline) DeadlinePassed() bool { return false }

type deadline struct{}

func (*deadline) open(int)  {}
func (*deadline) answered() {}
func (*deadline) close()    {}
