//go:build !linux

package procs

// trace is for Linux.
func trace([]string) {}

// suspendOnce is for Linux.
func suspendOnce([]string) {}
