//go:build !linux

package oneshot

import "syscall"

// dieWithParent does nothing: only Linux can kill a child when its parent ends.
func dieWithParent(*syscall.SysProcAttr) {}

// awaitExit returns false, because this system cannot wait without reaping.
func awaitExit(int) bool { return false }
