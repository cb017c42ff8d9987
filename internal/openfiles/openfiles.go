// Package openfiles reports how many files this process may have open. It keeps no state, and any goroutine may call
// it.
package openfiles

import (
	"math"
	"syscall"
)

// Limit returns the process's limit on open files (ulimit -n), or 0 if it is not known.
func Limit() int {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) != nil {
		return 0
	}
	return int(min(files.Cur, math.MaxInt32))
}

// ClientShare returns how many open files unauthenticated clients may take: a quarter of the limit, and at most most.
// The rest stays for the process itself. It returns most if the limit is not known.
func ClientShare(most int) int {
	n := Limit()
	if n == 0 {
		return most
	}
	return max(1, min(most, n/4))
}

// ReserveStart returns the lowest file descriptor of a reserve at the end of the process's limit. The reserve is
// 1/parts of the limit, and at most most files. The kernel gives a new file the lowest free descriptor, so a file in
// the reserve shows that nothing outside of it is free. If the limit is not known, ReserveStart returns math.MaxInt, so
// no file is in the reserve.
func ReserveStart(parts, most int) int {
	n := Limit()
	if n == 0 {
		return math.MaxInt
	}
	return n - min(most, n/parts)
}
