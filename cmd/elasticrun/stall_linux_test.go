package main

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// A launcher whose stdout and stderr nobody reads still ends, and ends its job, after SIGTERM or the death of its
// guard.
func TestConsoleThatNobodyReads(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "guard killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = r.Close() }()
			mark := testenv.Mark()
			cmd := exec.Command(testBinary(t), "--shutdown-timeout=0", "--event-log-handler=console", "--nproc-per-node=2",
				"--no-python", "sh", "-c", "trap '' TERM; yes flood")
			cmd.Env = append(os.Environ(), mark, shortTimeouts, "TMPDIR="+t.TempDir())
			cmd.Stdout, cmd.Stderr = w, w
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_ = w.Close()
			fillUp(t, r)
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			bound := time.AfterFunc(2*forcedExit, func() { _ = cmd.Process.Kill() })
			_ = cmd.Wait()
			if !bound.Stop() {
				t.Error("the launcher did not end")
			}
			if code := testenv.ExitCode(cmd.ProcessState); code != 128+int(sig) {
				t.Errorf("exit code %d", code)
			}
			testenv.NothingLeftWithin(t, mark, 2*forcedExit) // an agent that lost its guard ends by itself
		})
	}
}

// fillUp waits until the pipe is full: the flood is on, and the number of unread
// bytes does not change any more.
func fillUp(t *testing.T, r *os.File) {
	t.Helper()
	again := time.NewTicker(300 * time.Millisecond)
	defer again.Stop()
	for before := -1; ; <-again.C {
		unread, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
		if err != nil {
			t.Fatal(err)
		}
		if unread > 0 && unread == before {
			return
		}
		before = unread
	}
}
