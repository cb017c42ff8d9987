package oneshot

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// newMark returns a variable that no other process has.
func newMark() string { return "ONESHOT_MARK=" + rand.Text() }

// killLeft kills what a program left behind: its process group, unless group is 0, and the processes whose environment
// has the mark, also in sessions of their own. Without a /proc of this pid namespace a pid there says nothing of a
// process; then it kills the process group alone.
func killLeft(group int, mark string) {
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		if group != 0 {
			_ = syscall.Kill(-group, syscall.SIGKILL)
		}
		return
	}
	// A process may start another one during a search, so only a search that finds no other is the last one. One that was
	// killed starts none.
	for killed := map[int]bool{}; killMarked(group, []byte(mark), killed); {
	}
}

// killMarked adds the pids of the processes that it kills, and reports whether it has added one.
func killMarked(group int, mark []byte, killed map[int]bool) (more bool) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is valid
	for _, file := range files {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if killIfLeft(pid, group, file, mark) && !killed[pid] {
			killed[pid], more = true, true
		}
	}
	return more
}

// killIfLeft kills the process pid if it is in the group or its environment, this file, has the mark. It takes hold of
// the process before it looks, so that a pid which is used again meanwhile cannot mislead it.
func killIfLeft(pid, group int, file string, mark []byte) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer func() { _ = p.Release() }()
	if !inGroup(pid, group) {
		environ, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(environ, mark) {
			return false
		}
	}
	return p.Kill() == nil
}

// inGroup reports whether a process is in a process group; 0 is no group.
func inGroup(pid, group int) bool {
	of, err := syscall.Getpgid(pid)
	return group != 0 && err == nil && of == group
}
