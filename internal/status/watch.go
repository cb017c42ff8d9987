package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/backends"
	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/jobs"
	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/report"
)

const (
	visitTimeout = 15 * time.Second
	// revisitTimeout bounds the search for a store that was lost.
	revisitTimeout = 8 * time.Second
	// agentTimeout bounds the wait for the status of all agents. Agents without one are shown without.
	agentTimeout = 4 * time.Second
)

// visit opens a session in the store of a job; leave ends it. If the job is one of a scheduler and t has no secret, it
// uses the secret that the job's launchers on this machine know.
func visit(
	ctx context.Context, role coord.Role, t *config.Target, machine jobs.Folders, version string,
) (store coord.Store, leave func(), err error) {
	opts, to := backends.Options{Version: version, Logger: zerolog.Nop()}, t.Rendezvous
	if to.Secret.Reveal() == "" && (t.Inferred != nil || t.SlurmJob != "") {
		to.Secret = secretOfRun(ctx, machine, t.RunID)
	}
	store, err = backends.Visit(ctx, role, to, opts, t.RunID, t.InSlurm)
	if to.Secret.Reveal() == "" {
		err = withoutSecret(err, role, t.SlurmJob)
	}
	if err != nil && to.IsNearLocal() {
		err = fmt.Errorf("%w; %s", err, config.MeantLocal)
	}
	return store, func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = store.Close(bounded) // after an error the session expires after backends.VisitTTL
	}, err
}

// storeOf names the store of a job at an endpoint.
func storeOf(t config.Target) string {
	return fmt.Sprintf("the store of run id %q at %s", t.RunID, t.Rendezvous.Endpoint)
}

// WatchJob shows a job once, or with --watch until it has ended: its launchers on this machine if it is found here,
// else all of its agents.
func WatchJob(
	ctx context.Context, cfg *config.Status, machine jobs.Folders, version string, to *Printer,
) error {
	job, local, err := findShown(ctx, cfg.Target, machine, func(line string) { to.Note("%s", line) })
	switch {
	case err != nil:
		return err
	case local:
		return watchLocal(ctx, cfg, job, machine, to)
	}
	return watchStore(ctx, cfg, machine, version, to)
}

// watchStore shows all agents of the job at an endpoint. With --watch it looks for the store once more each time that
// the store is lost, because other agents may keep it.
func watchStore(
	ctx context.Context, cfg *config.Status, machine jobs.Folders, version string, to *Printer,
) error {
	where := storeOf(cfg.Target)
	for timeout := visitTimeout; ; timeout = revisitTimeout {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		store, leave, err := visit(bounded, coord.RoleObserver, &cfg.Target, machine, version)
		cancel()
		switch {
		case err == nil:
		case timeout == revisitTimeout && ctx.Err() == nil: // the store does not wait for observers when it ends
			to.Note(storeGone)
			return nil
		default:
			return &noReplyError{where, err}
		}
		again, err := showStore(ctx, cfg, store, where, to)
		leave()
		switch {
		case !again && timeout == revisitTimeout && errors.As(err, new(*config.UsageError)): // it is another job's store
			to.Note(storeGone)
			return nil
		case !again:
			return err
		}
	}
}

// storeGone is the last line if the store of a job that was shown is not found again.
const storeGone = "the job's store has gone: the job has ended, or it has lost its store"

// showStore shows the agents that have a session in the store. again says that the store was lost, and the job may go
// on.
func showStore(
	ctx context.Context, cfg *config.Status, store coord.Store, where string, to *Printer,
) (again bool, err error) {
	observing, cancel := context.WithCancel(ctx)
	defer cancel()
	snapshots, ended := make(chan elastic.Snapshot), make(chan error, 1)
	go func() {
		ended <- elastic.Observe(observing, store, cfg.RunID, func(v elastic.Snapshot) error {
			select {
			case snapshots <- v:
				return nil
			case <-observing.Done():
				return context.Cause(observing)
			}
		})
	}()
	result := ""
	shown, err := showSnapshots(observing, cfg, snapshots, ended, func(j Job) error {
		result = j.Result
		return to.Show(j)
	})
	cancel()
	lost := <-ended
	switch {
	case err != nil || ctx.Err() != nil:
	case !shown:
		err = &noReplyError{where, lost}
	case cfg.Watch && result != "":
		to.Note("the job has ended: %s", result)
	case cfg.Watch && (errors.Is(lost, coord.ErrUnavailable) || errors.Is(lost, coord.ErrSessionLost)):
		return true, nil
	}
	return false, err
}

// noSuchRun says that the store knows nothing of the run.
func noSuchRun(t config.Target) error {
	problem := fmt.Sprintf("the store at %s has no such run: ", t.Rendezvous.Endpoint)
	if t.RunID == config.NoRunID {
		problem += "that is the run id of a job without one; give --rdzv-id=ID as the job's agents have it"
	} else {
		problem += "check the run id"
	}
	return &config.UsageError{
		Where: "--rdzv-id=" + t.RunID, Problem: problem + "; otherwise the run has not started yet, or it has ended",
	}
}

// showSnapshots shows snapshots until one is enough or there are no more. It puts a value that it receives from ended
// back, for its caller.
func showSnapshots(
	ctx context.Context, cfg *config.Status, snapshots <-chan elastic.Snapshot, ended chan error, show func(Job) error,
) (shown bool, err error) {
	var latest *elastic.Snapshot
	var arrived time.Time // of latest
	due := time.NewTimer(agentTimeout)
	defer due.Stop()
	for {
		complete := false // enough to show
		select {
		case v := <-snapshots:
			if v.Empty() {
				return true, noSuchRun(cfg.Target)
			}
			complete = v.Outcome != nil || !shown && v.Complete()
			latest, arrived = &v, time.Now()
		case <-due.C: // observed agents send statuses all the time, so an old snapshot does not show the status now
			due.Reset(backends.StatusInterval)
			complete = latest != nil && (!shown || time.Since(arrived) < agentTimeout)
		case lost := <-ended:
			ended <- lost
			return shown, nil
		case <-ctx.Done():
			return true, nil
		}
		if !complete {
			continue
		}
		shown = true
		if err := show(jobOf(cfg.RunID, *latest, time.Now())); err != nil || !cfg.Watch || latest.Outcome != nil {
			return true, err
		}
		due.Reset(backends.StatusInterval)
	}
}

// jobOf combines what the rendezvous knows about a job with what its agents report.
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
	if v.Store != nil && v.Outcome == nil {
		j.Store = StoreOf(v.Store)
	}
	for _, a := range v.Agents {
		n := Node{Host: a.Host, Note: a.Note, Left: a.Departed, Workers: a.Nproc}
		if a.Rank >= 0 {
			n.Rank = new(a.Rank)
		}
		switch {
		case a.Lost && v.Outcome != nil: // its agent has learned of the end, or it was lost before
			n.Note = "ended"
		case a.Lost:
			n.Note = "lost"
		}
		var s Snapshot
		if json.Unmarshal(a.Status, &s) == nil && s.State != "" {
			n.Status = &s
		}
		j.Nodes = append(j.Nodes, n)
	}
	if j.Goodput = j.goodput(); v.Outcome != nil {
		j.Goodput = v.Outcome.Used
	}
	return j
}

// WatchAgent shows one agent once, or with --watch until it has ended.
func WatchAgent(ctx context.Context, cfg *config.Status, to *Printer) error {
	who := "the agent at " + cfg.Addr.String()
	return repeat(ctx, cfg, to, who, func() (Job, error) {
		s, err := Fetch(ctx, cfg.Addr.String())
		return OfAgent(s), err
	}, func() string { return "" })
}

// watchLocal shows the launchers that a job has on this machine once, or with --watch until they have ended.
func watchLocal(ctx context.Context, cfg *config.Status, job LocalJob, machine jobs.Folders, to *Printer) error {
	who := fmt.Sprintf("the job %s (%s)", printable.Quote(job.RunID), job.describe())
	return repeat(ctx, cfg, to, who, func() (Job, error) {
		seen, err := fetchAll(ctx, job.launchers)
		if err != nil {
			return Job{}, err
		}
		return OfAgents(seen), nil
	}, func() string { return howEnded(machine, job.launchers[0].Launcher) })
}

// howEnded says how a launcher of this machine has ended; empty if it has left no record.
func howEnded(machine jobs.Folders, l jobs.Launcher) string {
	for _, e := range machine.ListEnded() {
		if e.RunID == l.RunID && e.PID == l.PID && e.Started.Equal(l.Started) {
			return ": " + result(e, false)
		}
	}
	return ""
}

// repeat shows what fetch returns, once or with --watch until fetch fails. It then prints a note: that who has ended,
// followed by the text that how returns, or that who does not reply any more.
func repeat(
	ctx context.Context, cfg *config.Status, to *Printer, who string, fetch func() (Job, error), how func() string,
) error {
	for first := true; ; first = false {
		j, err := fetch()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return &noReplyError{who, err}
		case err != nil:
			if !errors.Is(err, errEnded) && !errors.Is(err, errNotListening) {
				to.Note("%s does not reply any more: %v", who, err)
				return nil
			}
			to.Note("%s has ended%s", who, how())
			return nil
		}
		if err := to.Show(j); err != nil || !cfg.Watch {
			return err
		}
		select {
		case <-time.After(backends.StatusInterval):
		case <-ctx.Done():
			return nil
		}
	}
}

// noReplyError reports that an agent or a store does not reply.
type noReplyError struct {
	who string
	err error
}

func (n *noReplyError) Error() string   { return n.who + ": " + n.err.Error() }
func (n *noReplyError) Unwrap() []error { return []error{n.err, rdzv.ErrConnection} }

// fetchAll requests the statuses of launchers of this machine, and returns those that arrive. It fails if none does.
func fetchAll(ctx context.Context, launchers []jobs.Running) (seen []Snapshot, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	for _, l := range launchers {
		s, failed := fetchLocal(ctx, l, "/status")
		if failed != nil {
			err = failed
			continue
		}
		seen = append(seen, s)
	}
	if len(seen) > 0 {
		return seen, nil
	}
	return nil, err
}
