package proctree

import (
	"syscall"
	"testing"
)

func TestTakesSignal(t *testing.T) {
	for _, tt := range []struct {
		name, status string
		takes        bool
	}{
		{"a handler", "SigBlk:\t0000000000000000\nSigCgt:\t0000000000000200\n", true},
		{"no handler", "SigBlk:\t0000000000000000\nSigCgt:\t0000000000000002\n", false},
		{"signalfd", "SigBlk:\t0000000000000200\nSigCgt:\t0000000000000000\n", true},
		{"a moment in which it starts a process", "SigBlk:\tfffffffe7ffbfeff\nSigCgt:\t0000000000000002\n", false},
		{"the same with a handler", "SigBlk:\tfffffffe7ffbfeff\nSigCgt:\t0000000000000200\n", true},
		{"nothing", "", false},
	} {
		if got := takesSignal([]byte(tt.status), syscall.SIGUSR1); got != tt.takes {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
