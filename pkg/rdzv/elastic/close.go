package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// A run is closed by one of its agents (Report.Close), or by a rounds.CloseRequest from outside. The leader records the
// request and ends the run, unless it finds that all workers have succeeded before. A request names its run by the
// create-revision of the key of the run's parameters. Agents that begin the run again, with the same id, write its
// parameters under another key. So a request can close only the run that its sender has seen.

// observeClose passes a request to close the leader's run on to the leader, and who waits for its result. Only the
// leader changes the run's parameters, so they do not change before the leader handles the request.
func (d *leaderDriver) observeClose(ctx context.Context, l *rounds.Leader, b coord.Batch) error {
	if b.Resync {
		l.ForgetClosers()
	}
	for _, e := range b.Events {
		var r rounds.CloseRequest
		switch {
		case strings.HasPrefix(e.Key, d.prefix+rounds.PrefixClose):
			l.ObserveCloser(e.Key, !e.Deleted)
			continue
		case e.Key != d.prefix+rounds.KeyClose || e.Deleted:
			continue
		}
		if err := json.Unmarshal(e.Value, &r); err != nil {
			d.log.Warn().Err(err).Msg("a request to close the run is malformed")
			continue
		}
		key := d.prefix + l.JobKey()
		job, err := listKeys(ctx, d.store, key)
		if err != nil {
			return err
		}
		for _, j := range job {
			if j.Key == key && j.Create == r.Job {
				l.RequestClose(r.By)
			}
		}
	}
	return nil
}

// ErrNoRun is the error of [Close] for a run that the store does not know: no agent has joined it, or its result is
// forgotten.
var ErrNoRun = fmt.Errorf("%w: there is no such run", rdzv.ErrRendezvous)

// ErrRunReplaced is the error of [Close] if the run that it found was not closed: all its nodes had left, and other
// agents have begun it again.
var ErrRunReplaced = fmt.Errorf("%w: all nodes of the run had left, and other agents have begun it again meanwhile",
	rdzv.ErrRendezvous)

// ErrUnconfirmed is the error of [Close] if it has requested the end of the run, and ctx ended before a leader had
// written it. The run may end within a minute.
var ErrUnconfirmed = fmt.Errorf("%w: the end of the run is requested, not confirmed", rdzv.ErrTimeout)

// Close closes the run runID for all nodes: its leader stops the workers and ends the run with [rdzv.EndClosed]. by
// says for people who asks. store is an observer's session ([C10d.OpenObserver], or a session of etcd), which Close
// keeps alive and does not close.
//
// Close returns the outcome as soon as the leader has written it; workers may still be stopping. It returns an
// [*rdzv.EndedError] if the run has ended otherwise: with Late if it had ended before the call, without if it ended by
// itself meanwhile. Other errors wrap [ErrNoRun], [ErrRunReplaced], [ErrUnconfirmed], or are the store's.
func Close(ctx context.Context, store coord.Store, runID, by string) (rdzv.Outcome, error) {
	alive, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = (&observer{store: store}).keepAlive(alive) })
	defer running.Wait()
	defer cancel()
	d := &leaderDriver{store: store, prefix: rounds.PrefixOf(runID)}
	seen, err := d.findRun(ctx)
	if err != nil {
		return rdzv.Outcome{}, err
	}
	switch err := d.writeCloseRequest(ctx, seen, by); {
	case errors.Is(err, coord.ErrConflict):
		return rdzv.Outcome{}, d.whyNotClosed(ctx, seen)
	case err != nil:
		return rdzv.Outcome{}, err
	}
	o, err := d.awaitResult(ctx, seen)
	switch {
	case err != nil && ctx.Err() != nil:
		return rdzv.Outcome{}, fmt.Errorf("%w: %w", ErrUnconfirmed, context.Cause(ctx))
	case err != nil:
		return rdzv.Outcome{}, err
	case o.Ending != rdzv.EndClosed:
		return o, &rdzv.EndedError{Outcome: o}
	}
	return o, nil
}

// namedRun names a run whose end can be requested: the key of its parameters and the key's create-revision.
type namedRun coord.Guard

// findRun returns the run that has not ended.
func (d *leaderDriver) findRun(ctx context.Context) (namedRun, error) {
	saved, err := d.readRun(ctx)
	switch {
	case err != nil:
		return namedRun{}, err
	case saved.Outcome != nil:
		return namedRun{}, &rdzv.EndedError{Outcome: *saved.Outcome, Late: saved.History.Finished.Lateness(time.Now())}
	case saved.Job == nil:
		return namedRun{}, ErrNoRun
	}
	return namedRun{Key: d.prefix + rounds.JobKey(saved.Begun), Create: saved.JobRevision}, nil
}

// writeCloseRequest requests the end of a run. The error is ErrConflict if the run has ended or was begun again.
func (d *leaderDriver) writeCloseRequest(ctx context.Context, run namedRun, by string) error {
	value, err := json.Marshal(rounds.CloseRequest{Job: run.Create, By: by})
	if err != nil {
		return err
	}
	guards := []coord.Guard{coord.Guard(run), {Key: d.prefix + rounds.KeyResult}}
	_, err = d.store.Commit(ctx, guards, []coord.Op{
		{Key: d.prefix + rounds.KeyClose, Value: value, TTL: rounds.CloseRequestTTL},
		{Key: d.prefix + rounds.PrefixClose + string(d.store.Session()), Value: []byte("{}"), Owned: true},
	})
	return err
}

// whyNotClosed returns the error for a run that is not the store's any more.
func (d *leaderDriver) whyNotClosed(ctx context.Context, run namedRun) error {
	switch now, err := d.findRun(ctx); {
	case errors.Is(err, ErrNoRun), err == nil && now != run:
		return ErrRunReplaced
	case err != nil:
		return err
	}
	return coord.ErrConflict // not expected: the guards hold, so the commit should not have met a conflict
}

// awaitResult waits for the result of a run whose end is requested.
func (d *leaderDriver) awaitResult(ctx context.Context, run namedRun) (o rdzv.Outcome, err error) {
	err = d.store.Watch(ctx, d.prefix+rounds.PrefixState, func(b coord.Batch) error {
		replaced := false
		for _, e := range b.Events {
			switch {
			case e.Key == d.prefix+rounds.KeyResult && !e.Deleted:
				if err := json.Unmarshal(e.Value, &o); err != nil {
					return fmt.Errorf("%w: %s: %w", rdzv.ErrState, e.Key, err)
				}
				return errListed
			case strings.HasPrefix(e.Key, d.prefix+rounds.PrefixJob) && !e.Deleted && e.Create != run.Create:
				replaced = true
			}
		}
		if replaced {
			return ErrRunReplaced
		}
		return nil
	})
	if errors.Is(err, errListed) {
		err = nil
	}
	return o, err
}
