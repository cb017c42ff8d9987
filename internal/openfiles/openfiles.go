// Package openfiles says how many files this process may have open. It keeps no state, and any goroutine may call it.
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

// Quarter returns how many files may belong to clients that have proved nothing: a quarter of the limit, so that they
// cannot take what the process needs, but no more than most.
func Quarter(most int) int {
	n := Limit()
	if n == 0 {
		return most
	}
	return max(1, min(most, n/4))
}

// Last returns the first number of the last files that the process may have: one part in parts, but no more than most.
// The kernel gives a new file the lowest free number, so one with a higher number shows that only those are left. If
// the limit is not known, Last returns the highest number there is.
func Last(parts, most int) int {
	n := Limit()
	if n == 0 {
		return math.MaxInt
	}
	return n - min(most, n/parts)
}
