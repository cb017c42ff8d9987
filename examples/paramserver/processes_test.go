package main

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// A job whose trainer or server is killed ends with the same result as an undisturbed job, to the last bit.
func TestProcesses(t *testing.T) {
	program, err := testenv.Build("examples/paramserver")
	if err != nil {
		t.Fatal(err)
	}
	undisturbed := launch(t, program)
	// The result of examples/digits, except for rounding, because its sums have another order.
	loss, err := strconv.ParseFloat(undisturbed.loss, 64)
	if err != nil || math.Abs(loss-0.1039904475293) > 1e-12 {
		t.Errorf("loss %s, want 0.1039904475293", undisturbed.loss)
	}
	want := job{
		begins:   []string{"attempt 0: a server and 3 trainers, 1400 training images, starting without a checkpoint"},
		final:    "final loss 0.103990 accuracy 89.42%",
		loss:     undisturbed.loss,
		restarts: "0",
	}
	if diff := cmp.Diff(want, undisturbed, cmp.AllowUnexported(job{})); diff != "" {
		t.Errorf("undisturbed (-want +got):\n%s", diff)
	}
	want.begins = append(want.begins, "attempt 1: a server and 3 trainers, 1400 training images, continuing after step 30")
	want.restarts = "1"
	for _, rank := range []string{"0", "2"} { // the server, and a trainer
		want.died = "rank " + rank + ": sends itself SIGKILL in step 35"
		got := launch(t, program, "--kill-at", "35", "--kill-rank", rank)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(job{})); diff != "" {
			t.Errorf("rank %s killed (-want +got):\n%s", rank, diff)
		}
	}
}

// job is the output of a job and the content of its result.txt.
type job struct {
	begins         []string // one line per attempt
	died           string
	final          string
	loss, restarts string
}

// launch runs a job of 4 workers to its end.
func launch(t *testing.T, program string, options ...string) job {
	t.Helper()
	mark := testenv.Mark()
	defer testenv.NothingLeft(t, mark)
	dir := t.TempDir()
	args := []string{"--nproc-per-node", "4", "--max-restarts", "1", "--no-python", program, "--data", digitsFile, "--checkpoint-dir", dir}
	cmd := exec.CommandContext(t.Context(), testenv.Binary(t), append(args, options...)...)
	cmd.Env = append(os.Environ(), mark)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	result, err := os.ReadFile(filepath.Join(dir, "result.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var j job
	for line := range strings.Lines(string(out) + string(result)) {
		line = strings.TrimSuffix(line, "\n")
		switch first, rest, _ := strings.Cut(line, " "); first {
		case "attempt":
			j.begins = append(j.begins, line)
		case "rank":
			j.died = line
		case "final":
			j.final = line
		case "loss":
			j.loss = rest
		case "restarts":
			j.restarts = rest
		}
	}
	return j
}
