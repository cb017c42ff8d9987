package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/backends"
	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/report"
)

const (
	visitBound = 15 * time.Second
	// agentTimeout is how long agents may take to show what they do. Those that have not by then are shown without.
	agentTimeout = 4 * time.Second
)

// WatchJob shows all agents of a job, with --watch until the job has ended.
func WatchJob(ctx context.Context, cfg *config.Status, version string, show func(Job) error) error {
	where := fmt.Sprintf("the store of run id %q at %s", cfg.RunID, cfg.Rendezvous.Endpoint)
	bounded, cancel := context.WithTimeout(ctx, visitBound)
	store, err := backends.Visit(bounded, cfg.Rendezvous, backends.Options{Version: version, Logger: zerolog.Nop()}, cfg.RunID, cfg.InSlurm)
	cancel()
	if err != nil {
		return &noAnswer{where, err}
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = store.Close(bounded) // or its session ends after visitTTL
	}()
	ctx, cancel = context.WithCancel(ctx)
	views, ended := make(chan elastic.Snapshot), make(chan error, 1)
	go func() {
		ended <- elastic.Observe(ctx, store, cfg.RunID, func(v elastic.Snapshot) error {
			select {
			case views <- v:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}()
	shown, err := showViews(ctx, cfg, views, ended, show)
	cancel()
	lost := <-ended
	switch {
	case err != nil:
	case !shown:
		err = &noAnswer{where, lost}
	case cfg.Watch && errors.Is(lost, coord.ErrUnavailable): // which does not wait for whoever looks
		fmt.Fprintln(os.Stderr, "elasticrun: the job's store has gone: the job has ended, or has lost it")
	}
	return err
}

// showViews shows what is to be shown of the views, until one is enough, or there are no more. It leaves ended as it finds it.
func showViews(ctx context.Context, cfg *config.Status, views <-chan elastic.Snapshot, ended chan error, show func(Job) error) (shown bool, err error) {
	var latest *elastic.Snapshot
	due := time.NewTimer(agentTimeout)
	defer due.Stop()
	for {
		now := false
		select {
		case v := <-views:
			if v.Empty() {
				return true, &config.UsageError{
					Where:   "--rdzv-id=" + cfg.RunID,
					Problem: fmt.Sprintf("the store at %s has nothing of such a run: it has another run id, or has not begun, or has ended", cfg.Rendezvous.Endpoint),
				}
			}
			now = v.Outcome != nil || !shown && v.Complete()
			latest = &v
		case <-due.C:
			now = latest != nil
		case lost := <-ended:
			ended <- lost
			return shown, nil
		case <-ctx.Done():
			return true, nil
		}
		if !now {
			continue
		}
		shown = true
		if err := show(jobOf(cfg.RunID, *latest, time.Now())); err != nil || !cfg.Watch || latest.Outcome != nil {
			return true, err
		}
		due.Reset(backends.StatusInterval)
	}
}

// jobOf puts what the rendezvous knows of a job beside what its agents say.
func jobOf(runID string, v elastic.Snapshot, now time.Time) Job {
	j := Job{Schema: Schema, Time: report.Time{Time: now}, RunID: runID, Nodes: []Node{}}
	if v.Record != nil {
		j.Round = &Round{Number: v.Record.Round, Nodes: len(v.Record.Members), Restarts: v.Record.Restarts}
		for _, m := range v.Record.Members {
			j.Round.WorldSize += m.Nproc
		}
		if v.Job != nil {
			j.Round.MaxRestarts = v.Job.MaxRestarts
		}
	}
	if v.Outcome != nil {
		j.Result, j.Why = string(v.Outcome.Ending), v.Outcome.Text
		if c := v.Outcome.Cause; c != nil {
			j.Why = fmt.Sprintf("rank %d on %s: %s", c.GlobalRank, c.Host, c.Summary)
		}
	}
	for _, seen := range v.Agents {
		n := Node{Host: seen.Host, Note: seen.Note, Workers: seen.Nproc}
		if seen.Rank >= 0 {
			n.Rank = new(seen.Rank)
		}
		if seen.Lost {
			n.Note = "lost"
		}
		var s Snapshot
		if json.Unmarshal(seen.Status, &s) == nil && s.State != "" {
			n.Status = &s
		}
		j.Nodes = append(j.Nodes, n)
	}
	return j
}

// WatchAgent shows one agent, with --watch until it is gone.
func WatchAgent(ctx context.Context, cfg *config.Status, show func(Job) error) error {
	for first := true; ; first = false {
		s, err := Fetch(ctx, cfg.Addr.String())
		switch {
		case err != nil && first:
			return &noAnswer{"the agent at " + cfg.Addr.String(), err}
		case err != nil: // it has ended
			return nil
		}
		if err := show(OfOne(s)); err != nil || !cfg.Watch {
			return err
		}
		select {
		case <-time.After(backends.StatusInterval):
		case <-ctx.Done():
			return nil
		}
	}
}

// noAnswer says that whom the user asked for the status does not answer.
type noAnswer struct {
	who string
	err error
}

func (n *noAnswer) Error() string   { return n.who + ": " + n.err.Error() }
func (n *noAnswer) Unwrap() []error { return []error{n.err, rdzv.ErrConnection} }
