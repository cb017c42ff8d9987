package slurmlab

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// Job is one that was given to sbatch.
type Job struct {
	ID  string
	Dir string // where it works; empty at first

	lab       *Lab
	mark      string // in the environment of its processes
	temporary string // its TMPDIR
}

// Status is what the controller knows of a job.
type Status struct {
	State    string // as squeue(1) lists them: "COMPLETED", ...
	ExitCode string // of the batch script, and the signal that ended it: "0:0"
	Restarts int    // how often it was requeued
}

// Submit gives a batch script to sbatch: args are sbatch's options, the script, and the script's own arguments; env is for the
// job. When the test ends the job is cancelled if it still runs, and must have left no process and no port.
func (l *Lab) Submit(t testing.TB, env []string, args ...string) *Job {
	t.Helper()
	j := &Job{Dir: t.TempDir(), lab: l, mark: testenv.Mark(), temporary: t.TempDir()}
	args = append([]string{"--parsable", "--chdir=" + j.Dir, "--output=" + filepath.Join(j.Dir, "out"), "--open-mode=append"}, args...)
	cmd := l.Command(t.Context(), "sbatch", args...)
	cmd.Env = append(append(cmd.Env, "TMPDIR="+j.temporary, j.mark), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("sbatch %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	j.ID = strings.TrimSpace(string(out))
	t.Cleanup(func() { j.end(t) })
	return j
}

// Status asks the controller. Of a heterogeneous job the first component is told.
func (j *Job) Status(t testing.TB) Status {
	t.Helper()
	first, _, _ := strings.Cut(j.lab.Run(t, "scontrol", "--oneliner", "show", "job", j.ID), "\n")
	found := fields(first)
	restarts, err := strconv.Atoi(found["Restarts"])
	if err != nil {
		t.Fatalf("scontrol shows no Restarts: %s", first)
	}
	return Status{State: found["JobState"], ExitCode: found["ExitCode"], Restarts: restarts}
}

// Wait returns how the job has ended.
func (j *Job) Wait(t testing.TB, bound time.Duration) Status {
	t.Helper()
	var s Status
	j.lab.Await(t, "the end of job "+j.ID, bound, func() bool {
		s = j.Status(t)
		return ended(s.State)
	})
	return s
}

// Output returns what the job has written to stdout and stderr.
func (j *Job) Output() string {
	out, _ := os.ReadFile(filepath.Join(j.Dir, "out")) // not there: it has written nothing
	return string(out)
}

// Temporary returns the names of the files and folders in the job's TMPDIR.
func (j *Job) Temporary(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir(j.temporary)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Cancel is scancel(1).
func (j *Job) Cancel(t testing.TB, options ...string) {
	t.Helper()
	j.lab.Run(t, "scancel", append(options, j.ID)...)
}

// end makes sure that the job has ended, and without a trace.
func (j *Job) end(t testing.TB) {
	t.Helper()
	if t.Failed() {
		t.Logf("job %s wrote:\n%s", j.ID, j.Output())
	}
	_ = j.lab.Command(context.WithoutCancel(t.Context()), "scancel", "--quiet", j.ID).Run() // it has ended, where this fails
	testenv.NothingLeftWithin(t, j.mark, (KillWait+10)*time.Second)
	if ports := j.lab.Listening(t); len(ports) > 0 {
		t.Errorf("after job %s somebody listens at %v", j.ID, ports)
	}
}

// ended reports whether a job in this state will not run any more.
func ended(state string) bool {
	return slices.Contains([]string{"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"}, state)
}
