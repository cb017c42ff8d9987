package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// node is one launcher of a job whose workers may hang.
type node struct {
	t      *testing.T
	mark   string
	begun  time.Time
	cmd    *exec.Cmd
	stderr strings.Builder
}

// startNode runs a shell script as every worker. It finds the file that hangs in $HANG and a folder for its
// signs in $DIR; await FILE waits for one.
func startNode(t *testing.T, dir string, h *testenv.Hang, script string, flags ...string) *node {
	t.Helper()
	n := &node{t: t, mark: testenv.Mark(), begun: time.Now()}
	script = `await() { while [ ! -e "$DIR/$1" ]; do sleep 0.02; done; }; ` + script
	n.cmd = exec.Command(testBinary(t), append(flags, "--no-python", "sh", "-c", script)...)
	n.cmd.Env = append(os.Environ(), n.mark, shortTimeouts, "HANG="+h.Path, "DIR="+dir, "TMPDIR="+t.TempDir())
	n.cmd.Stderr = &n.stderr
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return n
}

// ends waits for the launcher; code is what it must end with, and each of texts be on stderr.
func (n *node) ends(code int, texts ...string) {
	n.t.Helper()
	_ = n.cmd.Wait()
	if got := testenv.ExitCode(n.cmd.ProcessState); got != code {
		n.t.Errorf("exit code %d, want %d", got, code)
	}
	for _, text := range texts {
		if !strings.Contains(n.stderr.String(), text) {
			n.t.Errorf("stderr lacks %q", text)
		}
	}
	if took := time.Since(n.begun); took > time.Minute {
		n.t.Errorf("took %v", took)
	}
	n.t.Logf("ended after %v:\n%s", time.Since(n.begun).Round(time.Millisecond), &n.stderr)
}

func sign(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// If a worker hangs in the kernel and survives SIGKILL, the launcher still ends, with the right exit code, and reports
// where the worker hangs.
func TestHangingWorker(t *testing.T) {
	t.Parallel()
	const where = "(cat), state D, in uninterruptible sleep in request_wait_answer, kernel stack: request_wait_answer < "
	t.Run("another one failed", func(t *testing.T) {
		t.Parallel()
		h, dir := testenv.NewHang(t), t.TempDir()
		n := startNode(t, dir, h, `[ $RANK = 1 ] || exec cat "$HANG"; await go; exit 5`,
			"--nproc-per-node=2", "--restart-grace=0.2", "--max-restarts=3")
		<-h.Reading
		sign(t, dir, "go")
		n.ends(5, "processes do not die: pid ", where,
			"elasticrun: exit_code=5 reason=worker_failed rank=1 local_rank=1 summary=")
		if strings.Contains(n.stderr.String(), "a process of the job survives SIGKILL") ||
			!strings.HasSuffix(n.stderr.String(), "summary=\"exited with code 5\"\n") {
			t.Error("the guard says it again, after the last line")
		}
		h.Release()
		testenv.NothingLeft(t, n.mark)
	})
	t.Run("SIGTERM to the launcher", func(t *testing.T) {
		t.Parallel()
		testenv.InSoak(t)
		h := testenv.NewHang(t)
		n := startNode(t, t.TempDir(), h, `exec cat "$HANG"`, "--shutdown-timeout=0.2")
		<-h.Reading
		if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		n.ends(143, where, "elasticrun: exit_code=143 reason=signal\n")
		h.Release()
		testenv.NothingLeft(t, n.mark)
	})
	t.Run("the agent was killed", func(t *testing.T) {
		t.Parallel()
		testenv.InSoak(t)
		h := testenv.NewHang(t)
		n := startNode(t, t.TempDir(), h, `exec cat "$HANG"`)
		<-h.Reading
		j := job{t: t, cmd: n.cmd}
		if err := syscall.Kill(j.agentPID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		n.ends(137, "a process of the job survives SIGKILL: pid ", where, "elasticrun: exit_code=137 reason=signal\n")
		h.Release()
		testenv.NothingLeft(t, n.mark)
	})
	t.Run("the job goes on elsewhere", func(t *testing.T) {
		t.Parallel()
		testenv.InSoak(t)
		h, dir, store := testenv.NewHang(t), t.TempDir(), startStore(t)
		flags := []string{
			"--nnodes=1:2", "--rdzv-endpoint=" + store.addr, "--rdzv-id=hang", "--max-restarts=1", "--restart-grace=0.2",
			"--rdzv-conf=last_call_timeout=10,keep_alive_interval=1,keep_alive_max_attempt=3",
		}
		ill := startNode(t, dir, h, `exec cat "$HANG"`, flags...)
		well := startNode(t, dir, h, `[ $GROUP_WORLD_SIZE = 1 ] && exit 0; await go; exit 5`, flags...)
		<-h.Reading
		sign(t, dir, "go")
		well.ends(0)
		ill.ends(71, where, "elasticrun: exit_code=71 reason=stuck\n")
		h.Release()
		testenv.NothingLeft(t, ill.mark)
		testenv.NothingLeft(t, well.mark)
	})
}
