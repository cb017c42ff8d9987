package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/status"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/report"
)

const (
	visitTTL   = 10 * time.Second // how long agents go on showing what they do if this process dies
	visitBound = 15 * time.Second
	// statusPatience is how long agents may take to show what they do. Those that have not by then are shown without.
	statusPatience = 4 * time.Second
)

// watchJob shows all agents of a job, with --watch until the job has ended.
func watchJob(ctx context.Context, cfg *config.Status, show func(status.Job) error) error {
	where := fmt.Sprintf("the store of run id %q at %s", cfg.RunID, cfg.Rendezvous.Endpoint)
	bounded, cancel := context.WithTimeout(ctx, visitBound)
	store, err := visit(bounded, cfg)
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
func showViews(ctx context.Context, cfg *config.Status, views <-chan elastic.Snapshot, ended chan error, show func(status.Job) error) (shown bool, err error) {
	var latest *elastic.Snapshot
	due := time.NewTimer(statusPatience)
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
		due.Reset(statusInterval)
	}
}

// visit opens a session in the store of the job's agents.
func visit(ctx context.Context, cfg *config.Status) (coord.Store, error) {
	r := cfg.Rendezvous
	if r.Backend == rdzv.BackendEtcd {
		return (&backend{cfg: &config.Config{Rendezvous: r}, log: zerolog.Nop()}).dialEtcd(ctx)
	}
	host := r.Endpoints[0].Host
	if cfg.InSlurm {
		host = nodeAddr(ctx, host, zerolog.Nop())
	}
	return (&elastic.C10d{
		RunID: cfg.RunID, Version: version, Host: host, Ports: r.Ports, Secret: []byte(r.Secret.Reveal()),
	}).OpenObserver(ctx, visitTTL)
}

// jobOf puts what the rendezvous knows of a job beside what its agents say.
func jobOf(runID string, v elastic.Snapshot, now time.Time) status.Job {
	j := status.Job{Schema: status.Schema, Time: report.Time{Time: now}, RunID: runID, Nodes: []status.Node{}}
	if v.Record != nil {
		j.Round = &status.Round{Number: v.Record.Round, Nodes: len(v.Record.Members), Restarts: v.Record.Restarts}
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
		n := status.Node{Host: seen.Host, Note: seen.Note, Workers: seen.Nproc}
		if seen.Rank >= 0 {
			n.Rank = new(seen.Rank)
		}
		if seen.Lost {
			n.Note = "lost"
		}
		var s status.Snapshot
		if json.Unmarshal(seen.Status, &s) == nil && s.State != "" {
			n.Status = &s
		}
		j.Nodes = append(j.Nodes, n)
	}
	return j
}
