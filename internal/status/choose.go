package status

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/jobs"
	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// choose returns the job that a command without an endpoint means: the one with the run id, or the only one of the
// user. Root reaches other users' jobs by their run ids alone.
func choose(all []LocalJob, runID string, uid int) (LocalJob, error) {
	var mine, others []LocalJob
	for _, j := range all {
		switch {
		case runID != "" && j.RunID == runID, runID == "" && j.uid == uid:
			mine = append(mine, j)
		case runID == "":
			others = append(others, j)
		}
	}
	switch {
	case len(mine) == 1:
		return mine[0], nil
	case len(mine) == 0:
		return LocalJob{}, &noJobError{runID, others}
	case runID != "":
		return LocalJob{}, &config.UsageError{
			Where: "--rdzv-id=" + printable.Line(runID),
			Problem: fmt.Sprintf("%d jobs with this run id run on this machine: %s; give --rdzv-endpoint, or, for a job of one "+
				"node, send a signal to its pid", len(mine), describeJobs(mine)),
		}
	}
	return LocalJob{}, &config.UsageError{
		Problem: fmt.Sprintf("which job? %d run on this machine: %s; choose one by --rdzv-id", len(mine), describeJobs(mine)),
	}
}

// findLocal returns the job of this machine that a command means; false if it means the job at an endpoint. An endpoint
// that the scheduler's job would use comes second: a job of one node has none.
func findLocal(ctx context.Context, t config.Target, machine jobs.Folders) (job LocalJob, local bool, err error) {
	uid := os.Geteuid()
	if !t.Local && t.Inferred == nil {
		return LocalJob{}, false, nil
	}
	all := LocalJobs(ctx, machine, uid == 0)
	if !t.Local {
		if all = ofScheduler(all, *t.Inferred, uid); len(all) == 0 {
			if t.Inferred.Note != "" {
				fmt.Fprintln(os.Stderr, "elasticrun:", t.Inferred.Note)
			}
			return LocalJob{}, false, nil
		}
		t.RunID = t.Inferred.RunID
	}
	job, err = choose(all, t.RunID, uid)
	return job, true, err
}

// ofScheduler returns the jobs that a command may mean in a scheduler's job: those with the run id, else those that the
// user has started in the same scheduler's job.
func ofScheduler(all []LocalJob, t config.InferredTarget, uid int) (found []LocalJob) {
	for _, j := range all {
		sameJob := t.SchedulerJob != "" && j.schedulerJob == t.SchedulerJob && j.uid == uid
		if t.RunID != "" && j.RunID == t.RunID || t.RunID == "" && sameJob {
			found = append(found, j)
		}
	}
	return found
}

// maxDescribed bounds the jobs that are named in one line.
const maxDescribed = 10

// describeJobs names jobs in one line.
func describeJobs(all []LocalJob) string {
	var names []string
	for _, j := range all[:min(len(all), maxDescribed)] {
		pids := strings.Trim(fmt.Sprint(j.PIDs), "[]")
		names = append(names, fmt.Sprintf("%s (%s, pid %s)", printable.Quote(j.RunID), printable.Line(j.Script), pids))
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// noJobError says that the job runs not on this machine, or that no job does.
type noJobError struct {
	runID  string
	others []LocalJob // of other users, if root asks
}

func (e *noJobError) Error() string {
	const elsewhere = "for a job elsewhere give --rdzv-endpoint=HOST[:PORT] as its agents have it"
	switch {
	case e.runID != "":
		return fmt.Sprintf("no job of yours with the run id %s runs on this machine; elasticrun ps lists those that do; %s",
			printable.Quote(e.runID), elsewhere)
	case len(e.others) > 0:
		return fmt.Sprintf("no job of this user runs on this machine; choose one of other users by --rdzv-id: %s",
			describeJobs(e.others))
	}
	return "no job of yours runs on this machine; " + elsewhere
}

// Unwrap makes a noJobError an rdzv.ErrConnection.
func (e *noJobError) Unwrap() error { return rdzv.ErrConnection }
