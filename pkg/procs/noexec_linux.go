package procs

import "golang.org/x/sys/unix"

// noExec reports whether a file is on a file system whose programs the kernel does not execute.
func noExec(path string) bool {
	var s unix.Statfs_t
	return unix.Statfs(path, &s) == nil && s.Flags&unix.ST_NOEXEC != 0
}
