package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/jobs"
	"github.com/elasticrun/elasticrun/internal/plural"
	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/internal/stacks"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/report"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// JobStacks is what the workers of a job are doing.
type JobStacks struct {
	Schema int         `json:"schema"`
	Time   report.Time `json:"time"`
	RunID  string      `json:"run_id"`
	// WorldSize is the number of workers in the round; 0 if it is not known.
	WorldSize int `json:"world_size"`
	// Groups are the workers, those with equal stacks together, the largest group first.
	Groups []stacks.Group `json:"groups"`
	// NoReply are the hosts whose agents did not reply.
	NoReply []string `json:"silent"`

	allThreads, local bool
}

// Stacks returns what the workers of a job are doing. It asks the job's launchers on this machine if the job is found
// here, else all its agents. Notes for people go to note.
func Stacks(
	ctx context.Context, cfg *config.Stacks, machine jobs.Folders, version string, note func(string),
) (*JobStacks, error) {
	job, local, err := findShown(ctx, cfg.Target, machine, note)
	if err != nil {
		return nil, err
	}
	j := &JobStacks{Schema: Schema, NoReply: []string{}, allThreads: cfg.AllThreads}
	var workers []stacks.Worker
	if local {
		j.RunID, j.local = job.RunID, true
		workers, err = j.askLaunchers(ctx, job)
	} else {
		j.RunID = cfg.RunID
		workers, err = j.askAgents(ctx, cfg, machine, version)
	}
	if err != nil {
		return nil, err
	}
	if len(cfg.Ranks) > 0 {
		all := stacks.Group{Workers: slices.Clone(workers)}
		workers = slices.DeleteFunc(workers, func(w stacks.Worker) bool {
			return !cfg.Ranks.Has(workerlog.Ranks{Local: w.LocalRank, Global: w.Rank})
		})
		if len(workers) == 0 {
			problem := "no worker with such a rank runs" + j.where()
			if len(all.Workers) > 0 {
				problem += "; those that run have the ranks " + all.Ranks()
			}
			return nil, &config.UsageError{Where: "--rank", Problem: problem}
		}
	}
	j.Time = report.Time{Time: time.Now()}
	j.Groups = stacks.Merge(workers, cfg.AllThreads)
	return j, nil
}

// where returns the end of a sentence about workers: it names this machine if only its workers were read.
func (j *JobStacks) where() string {
	if j.local {
		return " on this machine"
	}
	return ""
}

// askLaunchers returns the workers of a job on this machine.
func (j *JobStacks) askLaunchers(ctx context.Context, job LocalJob) ([]stacks.Worker, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	var all []stacks.Worker
	for _, l := range job.launchers {
		workers, err := fetchStacks(ctx, l, j.allThreads)
		if errors.Is(err, errEnded) {
			continue
		}
		if err != nil {
			return nil, &noReplyError{fmt.Sprintf("the launcher, pid %s,", namePID(l.PID)), err}
		}
		all = append(all, workers...)
		if s, err := fetchLocal(ctx, l, "/state"); err == nil {
			j.WorldSize = max(j.WorldSize, s.WorldSize)
		}
	}
	return all, nil
}

// fetchStacks requests the stacks of the workers of a launcher of this machine.
func fetchStacks(ctx context.Context, l jobs.Running, allThreads bool) ([]stacks.Worker, error) {
	path := "/stacks"
	if allThreads {
		path += "?" + allThreadsParam
	}
	data, err := askLauncher(ctx, l, http.MethodGet, path, "")
	if err != nil {
		return nil, err
	}
	var workers []stacks.Worker
	if err := json.Unmarshal(data, &workers); err != nil {
		return nil, errors.New("its reply is no list of stacks")
	}
	return workers, nil
}

// askAgents returns the workers of the job at an endpoint.
func (j *JobStacks) askAgents(
	ctx context.Context, cfg *config.Stacks, machine jobs.Folders, version string,
) ([]stacks.Worker, error) {
	where := storeOf(cfg.Target)
	bounded, cancel := context.WithTimeout(ctx, visitTimeout)
	defer cancel()
	store, leave, err := visit(bounded, coord.RoleObserver, &cfg.Target, machine, version)
	if err != nil {
		return nil, &noReplyError{where, err}
	}
	defer leave()
	var latest *elastic.Snapshot
	complete := errors.New("complete")
	ctx, cancel = context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	err = elastic.ObserveStacks(ctx, store, cfg.RunID, cfg.AllThreads, func(s elastic.Snapshot) error {
		latest = &s
		if s.Empty() || s.Outcome != nil || s.HasStacks() {
			return complete
		}
		return nil
	})
	switch {
	case latest == nil:
		return nil, &noReplyError{where, err}
	case latest.Empty():
		return nil, noSuchRun(cfg.Target)
	}
	return j.workersOf(*latest), nil
}

// workersOf returns the workers of the agents that have replied, and adds the hosts of the others to j.NoReply.
func (j *JobStacks) workersOf(s elastic.Snapshot) []stacks.Worker {
	if s.Record != nil {
		for _, m := range s.Record.Members {
			j.WorldSize += m.Nproc
		}
	}
	var all []stacks.Worker
	for _, a := range s.Agents {
		if a.Departed {
			continue
		}
		workers, err := UnpackStacks(a.Stacks)
		if err != nil {
			j.NoReply = append(j.NoReply, a.Host)
			continue
		}
		all = append(all, workers...)
	}
	return all
}

// Text shows the stacks to people.
func (j *JobStacks) Text() string {
	shown := 0
	for _, g := range j.Groups {
		shown += len(g.Workers)
	}
	text := fmt.Sprintf("run id %s: ", clean(j.RunID))
	switch {
	case shown == 0:
		text += "no worker runs" + j.where()
	case j.WorldSize > shown:
		text += fmt.Sprintf("%d of %s%s", shown, plural.Of(j.WorldSize, "worker"), j.where())
	default:
		text += plural.Of(shown, "worker")
	}
	if len(j.NoReply) > 0 {
		text += "; no reply from " + printable.Line(strings.Join(j.NoReply, ", "))
	}
	if shown == 0 {
		return text + "\n"
	}
	return text + "\n\n" + stacks.Text(j.Groups, j.allThreads)
}
