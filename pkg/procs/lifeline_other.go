//go:build !linux

package procs

import (
	"syscall"
	"time"
)

// Hold does nothing here, where no guard runs.
func (l *Lifeline) Hold(syscall.Conn) error { return nil }

// Release does nothing here.
func (l *Lifeline) Release() error { return nil }

// Deadline does nothing here.
func (l *Lifeline) Deadline(time.Duration) {}

type deadline struct{}

func (*deadline) open(int)  {}
func (*deadline) answered() {}
func (*deadline) close()    {}
