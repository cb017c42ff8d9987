package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// job is a launch of real processes under test.
type job struct {
	t       *testing.T
	mark    string
	cmd     *exec.Cmd
	out     *bufio.Reader
	stderr  strings.Builder
	workers []int
}

// startJob starts the binary with two workers that have child processes, and waits until all of them
// run.
func startJob(t *testing.T, flags ...string) *job {
	t.Helper()
	return startJobOf(t, testenv.Binary(t), flags...)
}

// startJobOf starts a given binary with shortTimeouts.
func startJobOf(t *testing.T, binary string, flags ...string) *job {
	t.Helper()
	tree, err := filepath.Abs("../../testdata/workers/tree.sh")
	if err != nil {
		t.Fatal(err)
	}
	j := &job{t: t, mark: testenv.Mark()}
	args := append([]string{"--no-python", "--nproc-per-node=2"}, flags...)
	j.cmd = exec.Command(binary, append(args, tree)...)
	j.cmd.Env = append(os.Environ(), j.mark, shortTimeouts, "TMPDIR="+t.TempDir())
	j.cmd.Stderr = &j.stderr
	j.out = bufio.NewReader(testenv.StartWithOutput(t, j.cmd))
	for range 2 {
		line, err := j.out.ReadString('\n')
		if err != nil {
			t.Fatalf("worker did not get ready: %v\n%s", err, &j.stderr)
		}
		pid, err := strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(line), "ready "))
		if err != nil {
			t.Fatalf("line %q", line)
		}
		j.workers = append(j.workers, pid)
	}
	return j
}

// agentPID is the only child of the process that was started.
func (j *job) agentPID() int {
	j.t.Helper()
	children := testenv.Children(j.cmd.Process.Pid)
	if len(children) != 1 {
		j.t.Fatalf("the guard has children %v, want one", children)
	}
	return children[0]
}

// end waits for the launcher, checks that nothing is left, and returns the exit
// code as a shell would see it.
func (j *job) end() int {
	j.t.Helper()
	_ = j.cmd.Wait()
	testenv.NothingLeft(j.t, j.mark)
	return testenv.ExitCode(j.cmd.ProcessState)
}

// However a job is killed, none of its processes survives.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		kill   func(j *job) error
		code   int
		stderr string
	}{
		{
			"SIGTERM to the launcher", func(j *job) error { return j.cmd.Process.Signal(syscall.SIGTERM) }, 143,
			"exit_code=143 reason=signal",
		},
		{
			"SIGINT to the launcher", func(j *job) error { return j.cmd.Process.Signal(syscall.SIGINT) }, 130,
			"exit_code=130 reason=signal",
		},
		{"SIGKILL to the launcher", func(j *job) error { return j.cmd.Process.Kill() }, 137, ""},
		{
			"SIGKILL to the agent", func(j *job) error { return syscall.Kill(j.agentPID(), syscall.SIGKILL) }, 137,
			"exit_code=137 reason=signal",
		},
		{
			"SIGKILL to a worker", func(j *job) error { return syscall.Kill(j.workers[1], syscall.SIGKILL) }, 137,
			"Signal 9 (SIGKILL)",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for i := range testenv.Repeat(t, 4, 500) {
				j := startJob(t)
				if err := tt.kill(j); err != nil {
					t.Fatal(err)
				}
				if code := j.end(); code != tt.code {
					t.Fatalf("run %d: exit code %d, want %d\n%s", i, code, tt.code, &j.stderr)
				}
				if !strings.Contains(j.stderr.String(), tt.stderr) {
					t.Fatalf("run %d: stderr lacks %q:\n%s", i, tt.stderr, &j.stderr)
				}
			}
		})
	}
}
