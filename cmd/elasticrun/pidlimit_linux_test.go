package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// greedy is a worker that takes as many threads as there can be, once both ranks run. Rank 1 then ends with code 3,
// unless it is to stay.
const greedy = `
import os, threading, time
open(os.path.join(os.environ["GATE"], os.environ["RANK"]), "w").close()
while len(os.listdir(os.environ["GATE"])) < 2:
    time.sleep(0.001)
got = refused = 0
while refused < 20:
    try:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        got += 1
    except RuntimeError:
        refused += 1
        time.sleep(0.002)
print("full", flush=True)
if os.environ["RANK"] == "1" and "STAY" not in os.environ:
    os._exit(3)
time.sleep(1000)
`

// pidsCgroup makes a cgroup that allows so many processes and threads, and returns its folder and the words that start
// a command in it.
func pidsCgroup(t *testing.T, limit int) (dir string, in []string) {
	t.Helper()
	testenv.Root(t) // to make a cgroup
	for _, top := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		dir = filepath.Join(top, "elasticrun-test-"+rand.Text())
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if setPIDLimit(dir, limit) == nil {
			return dir, []string{"sh", "-c", `echo $$ >"$0"/cgroup.procs && exec "$@"`, dir}
		}
	}
	testenv.Missing(t, "needs the pids controller of cgroups")
	return "", nil
}

func setPIDLimit(cgroup string, limit int) error {
	f, err := os.OpenFile(filepath.Join(cgroup, "pids.max"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = fmt.Fprint(f, limit)
	return err
}

// Workers that use up a limit on threads fail, but the launcher does not: it ends the job, writes the report and
// returns the right exit code.
func TestThreadLimit(t *testing.T) {
	_, in := pidsCgroup(t, 64)
	for _, tt := range []struct {
		name string
		term bool
		code int
		last string
	}{
		{"a worker fails", false, 3, "elasticrun: exit_code=3 reason=worker_failed rank=1"},
		{"SIGTERM", true, 143, "elasticrun: exit_code=143 reason=signal"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i := range testenv.Repeat(t, 4, 100) {
				mark, reports := testenv.Mark(), filepath.Join(t.TempDir(), "report.json")
				words := append(append([]string{}, in...), testenv.Binary(t), "--no-python", "--nproc-per-node=2",
					"--report="+reports, "python3", "-c", greedy)
				cmd := exec.Command(words[0], words[1:]...)
				cmd.Env = append(os.Environ(), mark, "GATE="+t.TempDir())
				if tt.term {
					cmd.Env = append(cmd.Env, "STAY=1")
				}
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				stdout := testenv.StartWithOutput(t, cmd)
				if n, err := stdout.Read(make([]byte, 4)); tt.term && n == 4 && err == nil { // "full"
					_ = cmd.Process.Signal(syscall.SIGTERM)
				}
				_ = cmd.Wait()
				if code := testenv.ExitCode(cmd.ProcessState); code != tt.code || !strings.Contains(stderr.String(), tt.last) {
					t.Errorf("run %d: exit code %d, want %d and %q:\n%s", i, code, tt.code, tt.last, &stderr)
				}
				if _, err := os.Stat(reports); err != nil {
					t.Errorf("run %d: no report: %v", i, err)
				}
				testenv.NothingLeft(t, mark)
				if t.Failed() {
					return
				}
			}
		})
	}
}

// If a limit leaves no room for the launcher's threads, or for a worker after a restart, the error line names the
// limit.
func TestNoRoomForProcesses(t *testing.T) {
	t.Run("launcher", func(t *testing.T) {
		dir, in := pidsCgroup(t, 10)
		words := append(in, testenv.Binary(t), "--no-python", "true")
		out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput()
		want := "elasticrun: cgroup " + dir + " allows 10 processes and threads (pids.max), of which "
		if err == nil || !strings.Contains(string(out), want) || !strings.HasSuffix(string(out),
			"exit_code=72 reason=preflight\n") {
			t.Errorf("%v, want %q and code 72:\n%s", err, want, out)
		}
	})
	t.Run("raised once", func(t *testing.T) {
		for _, limit := range []int{10, 32} {
			dir, in := pidsCgroup(t, limit)
			launch := func() (string, error) {
				words := append(append([]string{}, in...), testenv.Binary(t), "--no-python", "--nproc-per-node=4", "sleep", "0.1")
				out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput()
				return string(out), err
			}
			out, err := launch()
			if err == nil {
				t.Fatalf("limit %d is enough:\n%s", limit, out)
			}
			advised := advisedLimit(t, out, 4)
			if err := setPIDLimit(dir, advised); err != nil {
				t.Fatal(err)
			}
			if out, err := launch(); err != nil {
				t.Errorf("limit %d, advised instead of %d: %v:\n%s", advised, limit, err, out)
			}
		}
	})
	t.Run("worker", func(t *testing.T) {
		dir, in := pidsCgroup(t, 64)
		fifo := filepath.Join(t.TempDir(), "go")
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		words := append(in, testenv.Binary(t), "--no-python", "--max-restarts=1", "--min-uptime=0", "sh", "-c",
			`echo; read line <"$0"; exit 3`, fifo)
		cmd := exec.Command(words[0], words[1:]...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		stdout := testenv.StartWithOutput(t, cmd)
		if _, err := stdout.Read(make([]byte, 1)); err != nil {
			t.Fatal(err, &stderr)
		}
		if err := setPIDLimit(dir, 1); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(fifo, []byte("\n"), 0); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		want := "resource temporarily unavailable: cgroup " + dir + " allows 1 processes and threads (pids.max), of which "
		if code := testenv.ExitCode(cmd.ProcessState); code != 126 || !strings.Contains(stderr.String(), want) {
			t.Errorf("exit code %d, want 126 and %q:\n%s", code, want, &stderr)
		}
	})
}
