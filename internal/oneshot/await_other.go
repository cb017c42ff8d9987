//go:build !linux

package oneshot

import "syscall"

// dieWithParent does nothing: the kernel kills no children here.
func dieWithParent(*syscall.SysProcAttr) {}

// awaitExit cannot wait without reaping here.
func awaitExit(int) bool { return false }
