package oneshot

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// newMark returns a variable that no other process has.
func newMark() string { return "ONESHOT_MARK=" + rand.Text() }

// killLeft kills what a program left behind: the processes whose environment has the mark, also in sessions of their
// own. Without a /proc of this pid namespace a pid there says nothing of a process; then it kills the process group,
// unless group is 0.
func killLeft(group int, mark string) {
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		if group != 0 {
			_ = syscall.Kill(-group, syscall.SIGKILL)
		}
		return
	}
	// A process may start another one during the search, so only a search that finds none is the last one.
	for began := time.Now(); killMarked([]byte(mark)) && time.Since(began) < killGrace; {
		time.Sleep(time.Millisecond) // a process that was killed has its environment until it is gone
	}
}

// killMarked reports whether it has killed a process.
func killMarked(mark []byte) (killed bool) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is valid
	for _, file := range files {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		killed = killIfMarked(pid, file, mark) || killed
	}
	return killed
}

// killIfMarked kills the process pid if its environment, this file, has the mark. It takes hold of the process before
// it reads the file, so that a pid which is used again meanwhile cannot mislead it.
func killIfMarked(pid int, file string, mark []byte) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer func() { _ = p.Release() }()
	environ, err := os.ReadFile(file)
	return err == nil && bytes.Contains(environ, mark) && p.Kill() == nil
}
