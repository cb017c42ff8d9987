//go:build !linux

package oneshot

// awaitExit cannot wait without reaping here.
func awaitExit(int) bool { return false }
