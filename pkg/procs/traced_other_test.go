//go:build !linux

package procs

// trace is for Linux.
func trace([]string) {}
