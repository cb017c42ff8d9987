package testenv

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"
)

// ExitCode returns the exit code of a process as a shell reports it: 128 and the signal for a process that was killed.
func ExitCode(ended *os.ProcessState) int {
	if status := ended.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return ended.ExitCode()
}

// Await polls a condition whose change sends no notice to the test. It fails the test after bound.
func Await(t testing.TB, what string, bound time.Duration, happened func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for !happened() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited %v for %s", bound, what)
		case <-again.C:
		}
	}
}
