package testenv

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ExitCode returns the exit code of a process as a shell reports it: 128 and the signal for a process that was killed.
func ExitCode(ended *os.ProcessState) int {
	if status := ended.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return ended.ExitCode()
}

// StartWithOutput starts cmd and returns its standard output.
func StartWithOutput(t testing.TB, cmd *exec.Cmd) (stdout io.ReadCloser) {
	t.Helper()
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return stdout
}

// StartWithPipes starts cmd and returns its standard input and output.
func StartWithPipes(t testing.TB, cmd *exec.Cmd) (stdin io.WriteCloser, stdout io.ReadCloser) {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	return stdin, StartWithOutput(t, cmd)
}

// Children lists the children of a process.
func Children(pid int) []int {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var pids []int
	for _, f := range files {
		data, _ := os.ReadFile(f) // the thread can have ended
		for field := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// AgentBelow finds the agent among a process and its descendants, by its name. It returns 0 if there is none.
func AgentBelow(root int) int {
	for next := []int{root}; len(next) > 0; next = next[1:] {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", next[0])) // the process can have ended
		if strings.TrimSpace(string(name)) == "erun-agent" {
			return next[0]
		}
		next = append(next, Children(next[0])...)
	}
	return 0
}

// Await polls a condition whose change sends no notice to the test. It fails the test after bound.
func Await(t testing.TB, what string, bound time.Duration, happened func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for !happened() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited %v for %s", bound, what)
		case <-again.C:
		}
	}
}
