//go:build !linux

package safefile

import "os"

// isOpenElsewhere is false where the system does not tell whether somebody else has the file open.
func isOpenElsewhere(*os.File) bool { return false }
