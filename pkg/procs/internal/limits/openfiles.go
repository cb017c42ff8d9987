package limits

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// openFiles is the limit on a process's open files; 0 where it is not known.
func openFiles() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return limit.Cur
}

// OpenFiles says which limit on open files there is, and what elasticrun needs.
func OpenFiles() string {
	return fmt.Sprintf("a process may have %d open files (ulimit -n), and elasticrun needs %d and %d for each worker; raise the limit",
		openFiles(), leastOpenFiles, workerOpenFiles)
}

// How many files a launcher has open: for itself, at least, and for each worker.
const (
	leastOpenFiles  = 20
	workerOpenFiles = 4
)

// CheckOpenFiles returns a problem where the launcher may not have the files open that it needs for itself:
// with fewer the Go runtime ends the program.
func CheckOpenFiles() (problem string) {
	if n := openFiles(); n == 0 || n >= leastOpenFiles {
		return ""
	}
	return OpenFiles()
}
