package testenv

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Mark returns a variable, ELASTICRUN_TEST_JOB=<random>, for the environment of a job that a test starts. Every process
// of the job inherits the variable, in whatever session or process group, so NothingLeft finds all of them.
func Mark() string {
	return "ELASTICRUN_TEST_JOB=" + rand.Text()
}

// NothingLeft fails the test if a process with mark in its environment or on its command line is still alive. A killed
// process needs a moment to end, and longer on a busy machine, so NothingLeft looks for up to 20 s. It kills the
// processes that it reports. It does not see zombies, which have neither environment nor command line. Linux only.
func NothingLeft(t testing.TB, mark string) {
	t.Helper()
	NothingLeftWithin(t, mark, 20*time.Second)
}

// NothingLeftWithin is NothingLeft with bound in place of 20 s.
func NothingLeftWithin(t testing.TB, mark string, bound time.Duration) {
	t.Helper()
	if mark == "" {
		t.Fatal("NothingLeft: empty mark")
	}
	// Cleanups call this after the test's own context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), bound)
	defer cancel()
	left, err := awaitGone(ctx, "/proc", mark)
	if err != nil {
		Missing(t, "needs /proc to look for processes: %v", err)
	}
	for _, p := range left {
		t.Errorf("left behind: %s", p)
		_ = syscall.Kill(p.pid, syscall.SIGKILL) // fails if the process has ended since
	}
}

// process is one line of the report.
type process struct {
	pid     int
	command string // arguments, joined by spaces
	state   string // "S (sleeping), parent 1"
}

func (p process) String() string {
	return fmt.Sprintf("pid %d, state %s: %s", p.pid, p.state, p.command)
}

// awaitGone looks for marked processes until it finds none or ctx is done, and returns the last ones that it found.
func awaitGone(ctx context.Context, proc, mark string) ([]process, error) {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		left, err := marked(proc, mark)
		if err != nil || len(left) == 0 {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return left, nil
		case <-again.C:
		}
	}
}

// marked lists the processes, except this one, whose environment has the variable mark or whose command line contains
// it.
func marked(proc, mark string) ([]process, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	var found []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// Errors below mean that the process has ended or belongs to another user.
		environ := environment(filepath.Join(proc, e.Name()))
		cmdline, _ := os.ReadFile(filepath.Join(proc, e.Name(), "cmdline"))
		if !slices.Contains(strings.Split(string(environ), "\x00"), mark) && !bytes.Contains(cmdline, []byte(mark)) {
			continue
		}
		status, _ := os.ReadFile(filepath.Join(proc, e.Name(), "status"))
		found = append(found, process{
			pid:     pid,
			command: strings.TrimSpace(strings.ReplaceAll(string(cmdline), "\x00", " ")),
			state:   field(status, "State:") + ", parent " + field(status, "PPid:"),
		})
	}
	slices.SortFunc(found, func(a, b process) int { return cmp.Compare(a.pid, b.pid) })
	return found, nil
}

// environment returns the environment of the process with the folder dir. If its first thread has ended, only the
// folders of its other threads show the environment.
func environment(dir string) []byte {
	environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
	if len(environ) > 0 {
		return environ
	}
	threads, _ := filepath.Glob(filepath.Join(dir, "task", "*", "environ"))
	for _, path := range threads {
		if environ, _ = os.ReadFile(path); len(environ) > 0 {
			break
		}
	}
	return environ
}

// field returns the value of the line that begins with name in /proc/PID/status.
func field(status []byte, name string) string {
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(value)
		}
	}
	return "?"
}
