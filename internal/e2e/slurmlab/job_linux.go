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

// Job is a job that was submitted with sbatch.
type Job struct {
	ID  string
	Dir string // working folder, empty at first

	lab       *Lab
	mark      string // variable in the environment of its processes
	temporary string // TMPDIR of the job
}

// Status is the controller's view of a job.
type Status struct {
	State    string // as squeue(1) prints it, such as "COMPLETED"
	ExitCode string // exit code of the batch script and the signal that ended it, such as "0:0"
	Restarts int    // number of times that the job was requeued
}

// Ended reports whether the job will not run again. The state of a job that Slurm signals, stops or requeues is neither
// "RUNNING" nor one of these: it is "SIGNALING", "COMPLETING" or "REQUEUED", for example.
func (s Status) Ended() bool {
	return slices.Contains(
		[]string{"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"},
		s.State,
	)
}

// Submit submits a batch script: args are sbatch's options, the script, and the script's own arguments; env is the
// environment of the job. The test's cleanup cancels the job if it still runs, and fails the test if the job has left
// a process or a listening port.
func (l *Lab) Submit(t testing.TB, env []string, args ...string) *Job {
	t.Helper()
	j := &Job{Dir: t.TempDir(), lab: l, mark: testenv.Mark(), temporary: t.TempDir()}
	args = append(
		[]string{"--parsable", "--chdir=" + j.Dir, "--output=" + filepath.Join(j.Dir, "out"), "--open-mode=append"},
		args...)
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

// Status asks the controller. For a heterogeneous job it returns the status of the first component.
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

// Wait returns the status of the job after its end.
func (j *Job) Wait(t testing.TB, bound time.Duration) Status {
	t.Helper()
	var s Status
	testenv.Await(t, "the end of job "+j.ID, bound, func() bool {
		s = j.Status(t)
		return s.Ended()
	})
	return s
}

// Output returns the job's stdout and stderr.
func (j *Job) Output() string {
	out, _ := os.ReadFile(filepath.Join(j.Dir, "out")) // the file is missing if the job has written nothing
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

// Cancel runs scancel(1) with options for the job.
func (j *Job) Cancel(t testing.TB, options ...string) {
	t.Helper()
	j.lab.Run(t, "scancel", append(options, j.ID)...)
}

// end makes sure that the job has ended and has left nothing.
func (j *Job) end(t testing.TB) {
	t.Helper()
	if t.Failed() {
		t.Logf("job %s wrote:\n%s", j.ID, j.Output())
	}
	_ = j.lab.Command(context.WithoutCancel(t.Context()), "scancel", "--quiet", j.ID).Run() // fails if the job has ended
	testenv.NothingLeftWithin(t, j.mark, (KillWait+10)*time.Second)
	if ports := j.lab.Listening(t); len(ports) > 0 {
		t.Errorf("after job %s somebody listens at %v", j.ID, ports)
	}
}
