package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// A worker that sets a timer with torch's own client and hangs is killed when the timer expires, and the worker group
// restarts.
func TestFileTimerOfTorch(t *testing.T) {
	t.Parallel()
	testenv.InSoak(t)
	script, err := filepath.Abs("../../testdata/workers/timer.py")
	if err != nil {
		t.Fatal(err)
	}
	expired := regexp.MustCompile(`a worker's timer has expired: .* local_rank=1 pid=\d+ rank=1 scope=step signal=SIGKILL\n`)
	for _, version := range []string{"1.13", "2.6", "2.14", testenv.Official} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			python := testenv.Torch(t, version)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, testenv.Binary(t), "--nproc-per-node=2", "--max-restarts=1", script)
			mark, tmp := testenv.Mark(), t.TempDir()
			cmd.Env = append(os.Environ(), "PYTHON_EXEC="+python, "TORCHELASTIC_ENABLE_FILE_TIMER=1", "TMPDIR="+tmp, mark)
			var out, errs strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &errs
			err := cmd.Run()
			testenv.NothingLeft(t, mark)
			if err != nil || strings.Count(out.String(), "finished 1\n") != 2 || len(expired.FindAllString(errs.String(), -1)) != 1 {
				t.Errorf("%v\n%s%s", err, &out, &errs)
			}
			if left, err := filepath.Glob(filepath.Join(tmp, "watchdog_timer_*")); err != nil || len(left) > 0 {
				t.Errorf("%v is left: %v", left, err)
			}
		})
	}
}
