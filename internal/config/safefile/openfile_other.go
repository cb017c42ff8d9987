//go:build !linux

package safefile

import "os"

// isOpenElsewhere is false where the system does not tell whether somebody else has the file open.
func isOpenElsewhere(*os.File) bool { return false }

// isSealed reports whether the open file is on a read-only mount of a file system in memory, as Linux has them.
func isSealed(*os.File) bool { return false }
