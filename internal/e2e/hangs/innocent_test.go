package hangs

import (
	"cmp"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// TestInnocent runs jobs that only seem to hang. They must end with success. elasticrun may report a hang only if a
// worker shows no sign of life from outside for longer than the timeout.
func TestInnocent(t *testing.T) {
	t.Parallel()
	seeds := testenv.Repeat(t, 1, 5)
	for _, kind := range innocents {
		if !kind.quick && !testenv.Whole(t) {
			continue
		}
		for seed := range seeds {
			t.Run(fmt.Sprint(kind.name, " ", seed), func(t *testing.T) {
				t.Parallel()
				found := runInnocent(t, kind.name, cmp.Or(kind.seconds, innocentSeconds),
					fmt.Sprint("--hang-timeout=", cmp.Or(kind.timeout, hangTimeout)),
					fmt.Sprint("INNOCENT_SEED=", seed))
				if len(found) > 0 && !kind.silent {
					t.Errorf("a job that makes progress is said to hang: %s", found[0].Summary)
				}
			})
		}
	}
}

// TestInnocentAuto runs the same jobs with the timeout that elasticrun chooses, after it has learned their rhythm.
func TestInnocentAuto(t *testing.T) {
	t.Parallel()
	if testenv.Repeat(t, 0, 100) < 100 {
		t.Skip("make soak runs it at scale 1")
	}
	for _, kind := range innocents {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			found := runInnocent(t, kind.name, autoSeconds, "--hang-timeout=auto", fmt.Sprint("INNOCENT_BEFORE=", learnSeconds))
			if len(found) > 0 && !kind.silent {
				t.Errorf("a job that makes progress is said to hang: %s", found[0].Summary)
			}
		})
	}
}

// runInnocent runs a job that only seems to hang, and returns the hangs that node 0 reports. A hang would end the job.
func runInnocent(t *testing.T, name string, seconds int, flag, variable string) []report.Hang {
	t.Helper()
	j := startJob(t, testenv.Python(t), "innocent.py", []string{flag, "--hang-action=stop"}, "INNOCENT="+name, variable,
		fmt.Sprint("INNOCENT_SECONDS=", seconds))
	switch name {
	case "stopped":
		var pids []int
		for range world {
			pids = append(pids, j.awaitBegun())
		}
		pauseAll(t, "STOP", pids, seconds)
	case "suspended":
		for range world {
			j.awaitBegun()
		}
		pauseAll(t, "TSTP", []int{j.nodes[0].cmd.Process.Pid, j.nodes[1].cmd.Process.Pid}, seconds)
	}
	if codes := j.codes(); !slices.Equal(codes, []int{0, 0}) {
		t.Errorf("exit codes %v, want 0", codes)
	}
	found := j.nodes[0].readReport(t).Hangs
	for _, hang := range found {
		t.Logf("reported: %s", hang.Summary)
	}
	return found
}

// pauseAll sends a signal that stops processes, and continues them after a time.
func pauseAll(t *testing.T, signal string, pids []int, seconds int) {
	t.Helper()
	all := strings.Trim(fmt.Sprint(pids), "[]")
	script := fmt.Sprintf("kill -%s %s; sleep %d; kill -CONT %s", signal, all, seconds, all)
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}
