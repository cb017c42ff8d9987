package oneshot

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// newMark returns an environment variable that no other process has.
func newMark() string { return "ONESHOT_MARK=" + rand.Text() }

// killLeft kills the processes that a program left: its process group, unless group is 0, and all processes whose
// environment has the mark, even in another session. If /proc is not that of this pid namespace, its pids belong to
// other processes; then killLeft kills the process group alone.
func killLeft(group int, mark string) {
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		if group != 0 {
			_ = syscall.Kill(-group, syscall.SIGKILL)
		}
		return
	}
	// A process may start another one during a search, so the search is repeated until it finds no new process. A process
	// that was killed starts none.
	for killed := map[int]bool{}; killMarked(group, []byte(mark), killed); {
	}
}

// killMarked kills the processes of the group and those with the mark, and adds their pids to killed. It reports
// whether it has added any.
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

// killIfLeft kills the process pid if it is in the group or if file, its environment, has the mark. It opens the
// process before it checks, so that it cannot kill another process that gets the same pid meanwhile.
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
