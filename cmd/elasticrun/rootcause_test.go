package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// The report names the rank that failed, although its victims often end first. With destroy_process_group() in a
// "finally" they lose their peer before Python has printed its error; with a slow exit handler the failed rank outlives
// them.
func TestRootCauseOfGloo(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("../../testdata/workers/gloo_fail.py")
	if err != nil {
		t.Fatal(err)
	}
	const quick = "destroyed, slow exit"
	workers := "--nproc-per-node=2"
	if testenv.Long(t) {
		workers = "--nproc-per-node=3"
	}
	for name, flags := range map[string][]string{
		"left alone":              nil,
		"destroyed":               {"--destroy"},
		"left alone, slow exit":   {"--slow-exit=5"},
		"destroyed, slow exit":    {"--destroy", "--slow-exit=5"},
		"destroyed, slow finally": {"--destroy", "--slow-finally=0.7"}, // longer than its victims take to end
		"rank 0, destroyed, slow": {"--failing-rank=0", "--destroy", "--slow-exit=5"},
	} {
		if !testenv.Whole(t) && name != quick {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range testenv.Repeat(t, 1, 10) {
				guilty := "1"
				if strings.HasPrefix(name, "rank 0") {
					guilty = "0"
				}
				torch := "2.14"
				if !testenv.Whole(t) { // takes half the CPU time to import
					torch = "1.13"
				}
				stderr, code := failingJob(t, torch, append([]string{workers, script}, flags...))
				wantCause(t, fmt.Sprintf("launch %d", i), stderr, code, fmt.Sprintf("rank=%s local_rank=%s", guilty, guilty))
			}
		})
	}
}

// Two nodes name the same rank, although one of them has only victims.
func TestRootCauseOfGlooElsewhere(t *testing.T) {
	testenv.InSoak(t)
	script, err := filepath.Abs("../../testdata/workers/gloo_fail.py")
	if err != nil {
		t.Fatal(err)
	}
	store := startStore(t)
	t.Setenv("GLOO_SOCKET_IFNAME", "lo")
	for i := range testenv.Repeat(t, 1, 10) {
		var stderrs [2]string
		var codes [2]int
		var nodes sync.WaitGroup
		for rank, workers := range []string{"1", "2"} {
			nodes.Go(func() {
				stderrs[rank], codes[rank] = failingJob(t, "2.14", []string{
					"--nproc-per-node=" + workers, "--nnodes=2", "--rdzv-id=gloo" + strconv.Itoa(i), "--rdzv-backend=c10d",
					"--rdzv-endpoint=" + store.addr,
					"--node-rank=" + strconv.Itoa(rank), script, "--failing-rank=0", "--destroy", "--slow-exit=5",
				})
			})
		}
		nodes.Wait()
		for rank := range stderrs {
			wantCause(t, fmt.Sprintf("launch %d, node %d", i, rank), stderrs[rank], codes[rank], "rank=0 local_rank=0")
		}
	}
	store.signal(syscall.SIGTERM)
	store.end()
}

// wantCause checks how a job has ended by an exception.
func wantCause(t *testing.T, who, stderr string, code int, cause string) {
	t.Helper()
	want := "elasticrun: exit_code=1 reason=worker_failed " + cause + ` summary="ValueError: rank`
	if last := lastOf(stderr); code != 1 || !strings.HasPrefix(last, want) {
		t.Errorf("%s: exit code %d, the last line %q, want %q\n%s", who, code, last, want, stderr)
	}
}

// lastOf is the last line of a text.
func lastOf(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return lines[len(lines)-1]
}

// failingJob runs a job with a version of torch and returns what came on stderr, and the exit code.
func failingJob(t *testing.T, torch string, args []string) (stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, testenv.Binary(t), args...)
	mark := testenv.Mark()
	cmd.Env = append(os.Environ(), "PYTHON_EXEC="+testenv.Torch(t, torch), "OMP_NUM_THREADS=1", "TMPDIR="+t.TempDir(), mark)
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	testenv.NothingLeft(t, mark)
	return errs.String(), cmd.ProcessState.ExitCode()
}
