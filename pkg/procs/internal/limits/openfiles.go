package limits

import (
	"fmt"

	"github.com/elasticrun/elasticrun/internal/openfiles"
)

// OpenFiles names the limit on open files, and says how many elasticrun needs.
func OpenFiles() string {
	return fmt.Sprintf("a process may have %d open files (ulimit -n), "+
		"and elasticrun needs %d and %d for each worker; raise the limit",
		openfiles.Limit(), leastOpenFiles, workerOpenFiles)
}

// How many files a launcher has open: at least for itself, and for each worker.
const (
	leastOpenFiles  = 20
	workerOpenFiles = 4
)

// CheckOpenFiles returns a problem, in one line, if the launcher may not open the files that it needs for itself;
// otherwise it returns "". With fewer files the Go runtime ends the program.
func CheckOpenFiles() (problem string) {
	if n := openfiles.Limit(); n == 0 || n >= leastOpenFiles {
		return ""
	}
	return OpenFiles()
}
