package testenv

import (
	"syscall"
	"testing"
)

// FileLimit sets how many files this process may have until the test ends. Tests that run beside this one have the same
// limit.
func FileLimit(t testing.TB, n int) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) })
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(n), Max: before.Max}); err != nil {
		t.Fatal(err)
	}
}
