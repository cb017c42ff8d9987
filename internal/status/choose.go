package status

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/jobs"
	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// choose returns the job that a command without an endpoint means. With a run id, that is the user's job with this run
// id, else the user's only job whose run id begins with it. Without a run id, it is the user's only job. Root reaches a
// job of another user only by its whole run id, and only if no job of root has that run id.
func choose(all []LocalJob, runID string, uid int) (LocalJob, error) {
	var mine, others, begin []LocalJob
	for _, j := range all {
		switch {
		case runID != "" && j.RunID != runID:
			if j.uid == uid && strings.HasPrefix(j.RunID, runID) {
				begin = append(begin, j)
			}
		case j.uid == uid:
			mine = append(mine, j)
		default:
			others = append(others, j)
		}
	}
	if runID != "" && len(mine) == 0 {
		if mine, others = others, nil; len(mine) == 0 && len(begin) > 0 {
			return onlyOne(begin, runID)
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
		Problem: fmt.Sprintf("which job? %d run on this machine: %s; give --rdzv-id with a run id or its start", len(mine),
			describeJobs(mine)),
	}
}

// chooseToShow is choose for a command that changes nothing. If there is no run id and the user has several jobs, it
// returns the only one that was started in this directory, and calls note with a line that says so.
func chooseToShow(all []LocalJob, runID string, uid int, note func(string)) (LocalJob, error) {
	mine := slices.DeleteFunc(slices.Clone(all), func(j LocalJob) bool { return j.uid != uid })
	here := slices.DeleteFunc(slices.Clone(mine), func(j LocalJob) bool { return !j.isStartedHere() })
	if runID != "" || len(mine) < 2 || len(here) != 1 {
		return choose(all, runID, uid)
	}
	note(fmt.Sprintf("showing %s, the only job that was started in this directory; --rdzv-id shows another one of the %d "+
		"on this machine", describeJobs(here), len(mine)))
	return here[0], nil
}

// findShown is findLocal for a command that changes nothing. local is also false if the job's store can be asked at the
// endpoint that the scheduler's job would use, because the store knows all nodes. A line about the choice goes to note.
func findShown(
	ctx context.Context, t config.Target, machine jobs.Folders, note func(string),
) (job LocalJob, local bool, err error) {
	job, local, err = findLocal(ctx, t, machine, func(all []LocalJob, runID string, uid int) (LocalJob, error) {
		return chooseToShow(all, runID, uid, note)
	})
	return job, local && (t.Inferred == nil || job.Endpoint == "" || job.RunID != t.RunID), err
}

// onlyOne returns the only job in begin, the jobs whose run ids begin with prefix; an error if there are several.
func onlyOne(begin []LocalJob, prefix string) (LocalJob, error) {
	if len(begin) == 1 {
		return begin[0], nil
	}
	return LocalJob{}, &config.UsageError{
		Where:   "--rdzv-id=" + printable.Line(prefix),
		Problem: fmt.Sprintf("%d jobs have run ids that begin so: %s; write more of one", len(begin), describeJobs(begin)),
	}
}

// chooseFunc returns one of the local jobs, as choose does.
type chooseFunc func(all []LocalJob, runID string, uid int) (LocalJob, error)

// findLocal returns the job of this machine that a command means. local is false if the command means the job at an
// endpoint. A job of this machine is preferred to an endpoint that was inferred from the scheduler's job, because a job
// of one node has no endpoint.
func findLocal(
	ctx context.Context, t config.Target, machine jobs.Folders, choose chooseFunc,
) (job LocalJob, local bool, err error) {
	uid := os.Geteuid()
	if !t.Local && t.Inferred == nil {
		return LocalJob{}, false, nil
	}
	all := LocalJobs(ctx, machine, uid == 0)
	if t.Rendezvous.Local {
		all = slices.DeleteFunc(all, func(j LocalJob) bool { return j.Endpoint != config.LocalEndpoint })
	}
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

// ofScheduler returns the user's jobs that a command may mean in a scheduler's job: those with the run id, or without a
// run id those that were started in the same scheduler's job.
func ofScheduler(all []LocalJob, t config.InferredTarget, uid int) (found []LocalJob) {
	for _, j := range all {
		sameJob := t.SchedulerJob != "" && j.schedulerJob == t.SchedulerJob
		if j.uid == uid && (t.RunID != "" && j.RunID == t.RunID || t.RunID == "" && sameJob) {
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
		names = append(names, printable.Quote(j.RunID)+" ("+j.describe()+")")
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// describe identifies job j for people: its script, its launchers' pids, its user if that is another one, and where it
// was started.
func (j LocalJob) describe() string {
	text := printable.Line(j.Script) + ", pid " + cmp.Or(joinPIDs(j.PIDs), "unknown")
	if j.uid != os.Geteuid() {
		text += ", of user " + printable.Quote(j.User)
	}
	if j.dir != "" {
		text += ", started in " + printable.Quote(j.dir)
	}
	return text
}

// isStartedHere reports whether the job was started in this directory.
func (j LocalJob) isStartedHere() bool {
	here, err1 := os.Stat(".")
	there, err2 := os.Stat(j.dir)
	return err1 == nil && err2 == nil && os.SameFile(here, there)
}

// startedHere returns an error unless the job was started in this directory.
func startedHere(j LocalJob) error {
	if j.isStartedHere() {
		return nil
	}
	return &config.UsageError{Problem: fmt.Sprintf(
		"which job? none was started in this directory; to stop %s write elasticrun stop --rdzv-id=%s",
		describeJobs([]LocalJob{j}), printable.Quote(j.RunID))}
}

// noJobError says that the job does not run on this machine, or that no job does.
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
