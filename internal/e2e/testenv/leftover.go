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

// Mark returns a variable, ELASTICRUN_TEST_JOB=<random>, for the environment of
// what a test starts. Every process of that job inherits it, whatever session or
// process group it moves to, so NothingLeft finds them all.
func Mark() string {
	return "ELASTICRUN_TEST_JOB=" + rand.Text()
}

// NothingLeft fails the test if a process that carries mark in its environment or
// on its command line lives on. A process that is being killed needs a moment, so
// it looks again for up to 5 s. What it reports it also kills. A zombie has neither
// environment nor command line any more and is not seen. Linux only.
func NothingLeft(t testing.TB, mark string) {
	t.Helper()
	NothingLeftWithin(t, mark, 5*time.Second)
}

// NothingLeftWithin is NothingLeft with another bound than 5 s.
func NothingLeftWithin(t testing.TB, mark string, bound time.Duration) {
	t.Helper()
	if mark == "" {
		t.Fatal("NothingLeft: empty mark")
	}
	// Cleanups call this too, when the test's own context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), bound)
	defer cancel()
	left, err := awaitGone(ctx, "/proc", mark)
	if err != nil {
		Missing(t, "needs /proc to look for processes: %v", err)
	}
	for _, p := range left {
		t.Errorf("left behind: %s", p)
		_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may have ended just now
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

// awaitGone looks for marked processes until there are none or ctx is done, and
// returns the last ones seen.
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

// marked lists the processes, but for this one, whose environment has the variable
// mark or whose command line contains it.
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
		// Errors below mean: ended meanwhile, or another user's and so not ours.
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

// environment returns the environment of a process, given its folder. One whose first thread has ended shows it only with the
// others.
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

// field returns the value of a line of /proc/PID/status.
func field(status []byte, name string) string {
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(value)
		}
	}
	return "?"
}
