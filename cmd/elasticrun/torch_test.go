package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// ddpResult is where examples/ddp.py ends, whatever the torch and the number of
// workers: its sums are over all images, and six digits of them are shown.
const ddpResult = "final loss 0.025285 accuracy 91.69%"

// ddp runs examples/ddp.py with a real torch and returns what it and the launcher
// wrote, and the exit code.
func ddp(t *testing.T, torch string, workers int, flags, scriptFlags []string) (stdout, stderr string, code int) {
	t.Helper()
	script, err := filepath.Abs("../../examples/ddp.py")
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"--nproc-per-node", strconv.Itoa(workers)}, flags...)
	args = append(args, script, "--checkpoint-dir", t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, testenv.Binary(t), append(args, scriptFlags...)...)
	mark := testenv.Mark()
	cmd.Env = append(os.Environ(), "PYTHON_EXEC="+testenv.Torch(t, torch), "OMP_NUM_THREADS=1", "TMPDIR="+t.TempDir(), mark)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	testenv.NothingLeft(t, mark)
	if t.Failed() || ctx.Err() != nil {
		t.Fatalf("took too long, or left something behind:\n%s%s", &out, &errs)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Real DistributedDataParallel jobs over gloo, on the worker store.
func TestTorch(t *testing.T) {
	t.Parallel()
	for _, torch := range []string{"1.13", "2.6", "2.14", testenv.Official} {
		if torch != "1.13" && !testenv.Whole(t) { // it takes half the CPU time of 2.14
			continue
		}
		// In short runs of make soak the other versions have only the job whose worker dies once.
		whole := testenv.Long(t) || torch == "2.14" && testenv.Whole(t)
		for _, workers := range []int{2, 4} {
			if !whole { // the job whose worker dies once has the same result
				continue
			}
			t.Run(fmt.Sprintf("torch %s, %d workers", torch, workers), func(t *testing.T) {
				t.Parallel()
				stdout, stderr, code := ddp(t, torch, workers, nil, nil)
				if code != 0 || !strings.Contains(stdout, ddpResult) {
					t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
				}
			})
		}
		t.Run(fmt.Sprintf("torch %s, a worker dies once", torch), func(t *testing.T) {
			t.Parallel()
			stdout, stderr, code := ddp(t, torch, 2, []string{"--max-restarts", "1"},
				[]string{"--kill-at", "35", "--kill-rank", "1"})
			if code != 0 || !strings.Contains(stdout, ddpResult) || !strings.Contains(stdout, "continuing after step 30") {
				t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
			}
		})
		if !whole {
			continue
		}
		t.Run(fmt.Sprintf("torch %s, no restart is left", torch), func(t *testing.T) {
			t.Parallel()
			_, stderr, code := ddp(t, torch, 2, []string{"--max-restarts", "0"}, []string{"--kill-at", "5", "--kill-rank", "1"})
			if code != 137 || !strings.Contains(stderr, "rank      : 1 (local_rank: 1)") ||
				!strings.Contains(stderr, "Signal 9 (SIGKILL)") {
				t.Errorf("exit code %d\n%s", code, stderr)
			}
		})
		t.Run(fmt.Sprintf("torch %s, an exception", torch), func(t *testing.T) {
			t.Parallel()
			_, stderr, code := ddp(t, torch, 2, nil, []string{"--fail-at", "5", "--fail-rank", "1"})
			_, report, _ := strings.Cut(stderr, "Root Cause")
			for _, want := range []string{
				"rank      : 1 (local_rank: 1)", "exitcode  : 1",
				"Traceback (most recent call last)", "RuntimeError: rank 1 fails in step 5, as --fail-at requests",
			} {
				if !strings.Contains(report, want) {
					t.Errorf("the report lacks %q", want)
				}
			}
			if code != 1 || t.Failed() {
				t.Errorf("exit code %d\n%s", code, stderr)
			}
		})
	}
}
