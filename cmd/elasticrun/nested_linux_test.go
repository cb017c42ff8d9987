package main

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// outerWorker returns the pid of the agent's worker, above that of the inner launcher. Daemons may be the agent's
// children too.
func (j *job) outerWorker() int {
	j.t.Helper()
	agent, pid := j.agentPID(), j.workers[0]
	for pid > 1 {
		parent, err := strconv.Atoi(statField(j.t, pid, 1))
		if err != nil {
			j.t.Fatal(err)
		}
		if parent == agent {
			return pid
		}
		pid = parent
	}
	j.t.Fatalf("worker %d is not below the agent, %d", j.workers[0], agent)
	return 0
}

// A worker may itself be a launcher, whose workers start daemons. Whatever ends the outer job or this worker ends all
// of them too.
func TestLauncherInALauncher(t *testing.T) {
	t.Parallel()
	elasticrun := func(t *testing.T) []string {
		t.Helper()
		return []string{testenv.Binary(t), "--no-python", "--nproc-per-node=2"}
	}
	torchrunOf := func(version string) func(t *testing.T) []string {
		return func(t *testing.T) []string {
			t.Helper()
			return []string{
				testenv.Torch(t, version), "-m", "torch.distributed.run", "--standalone", "--no-python",
				"--nproc-per-node=2",
			}
		}
	}
	torchrun, official := torchrunOf("2.14"), torchrunOf(testenv.Official)
	term := func(j *job) error { return j.cmd.Process.Signal(syscall.SIGTERM) }
	killWorker := func(j *job) error { return syscall.Kill(j.outerWorker(), syscall.SIGKILL) }
	for _, tt := range []struct {
		name   string
		inner  func(t *testing.T) []string // up to its script
		kill   func(j *job) error
		code   int
		stderr string
	}{
		{"elasticrun, SIGTERM to the outer one", elasticrun, term, 143, "exit_code=143 reason=signal\n"},
		{"elasticrun, SIGKILL to the outer one", elasticrun, func(j *job) error { return j.cmd.Process.Kill() }, 137, ""},
		{
			"elasticrun, SIGKILL to the outer agent", elasticrun,
			func(j *job) error { return syscall.Kill(j.agentPID(), syscall.SIGKILL) }, 137, "exit_code=137 reason=signal\n",
		},
		{"elasticrun, SIGKILL to the outer worker", elasticrun, killWorker, 137, "exit_code=137 reason=worker_killed rank=0"},
		{"torchrun, SIGTERM to the outer one", torchrun, term, 143, "exit_code=143 reason=signal\n"},
		{"torchrun, SIGKILL to the outer worker", torchrun, killWorker, 137, "exit_code=137 reason=worker_killed rank=0"},
		{"torchrun, official, SIGTERM to the outer one", official, term, 143, "exit_code=143 reason=signal\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if strings.HasPrefix(tt.name, "torchrun") {
				testenv.InSoak(t)
			}
			j := startJob(t, append([]string{"--nproc-per-node=1"}, tt.inner(t)...)...)
			if err := tt.kill(j); err != nil {
				t.Fatal(err)
			}
			if code := j.end(); code != tt.code || !strings.Contains(j.stderr.String(), tt.stderr) {
				t.Errorf("exit code %d, want %d and %q:\n%s", code, tt.code, tt.stderr, &j.stderr)
			}
		})
	}
}

// The outer launcher ends with the exit code and the summary of the inner one.
func TestCodesOfALauncherInALauncher(t *testing.T) {
	t.Parallel()
	j := startJob(t, "--nproc-per-node=1", testenv.Binary(t), "--no-python", "--nproc-per-node=2")
	if err := syscall.Kill(j.workers[1], syscall.SIGSEGV); err != nil {
		t.Fatal(err)
	}
	if code := j.end(); code != 139 || !strings.HasSuffix(j.stderr.String(),
		"elasticrun: exit_code=139 reason=worker_failed rank=0 local_rank=0 summary=\"killed by signal 11 (SIGSEGV)\"\n") {
		t.Errorf("exit code %d:\n%s", code, &j.stderr)
	}
}
