package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// readRun reads what earlier leaders have left in the store, without their answers.
func (d *leaderDriver) readRun(ctx context.Context) (saved savedState, err error) {
	state, err := listKeys(ctx, d.store, d.prefix+prefixState)
	if err != nil {
		return saved, err
	}
	for _, e := range state {
		key := strings.TrimPrefix(e.Key, d.prefix)
		switch {
		case strings.HasPrefix(key, prefixJob):
			var job Job
			if err = json.Unmarshal(e.Value, &job); err == nil {
				err = saved.addJob(key, e.Create, job)
			}
		case key == keyResult:
			saved.outcome, saved.history.resultRevision = new(rdzv.Outcome), e.Create
			err = json.Unmarshal(e.Value, saved.outcome)
		case key == keyFinished:
			err = json.Unmarshal(e.Value, &saved.history.finished)
		case key == keyPast:
			err = json.Unmarshal(e.Value, &saved.history.past)
		case key == keyPreempted:
			saved.preemption = new(rdzv.Preemption)
			err = json.Unmarshal(e.Value, saved.preemption)
		case key == keyWaiting:
			err = json.Unmarshal(e.Value, &saved.waiting)
		case strings.HasPrefix(key, prefixDeparted):
			var d departedMember
			err = json.Unmarshal(e.Value, &d)
			saved.departed = append(saved.departed, d)
		case strings.HasPrefix(key, prefixSucceeded):
			var s successes
			err = json.Unmarshal(e.Value, &s)
			saved.succeeded = append(saved.succeeded, s)
		case strings.HasPrefix(key, prefixRound):
			r := new(Record)
			if err = decodeRecord(e.Value, r); err == nil && (saved.record == nil || r.Round > saved.record.Round) {
				saved.record = r
			}
		}
		if err != nil {
			return saved, fmt.Errorf("%w: %s: %w", rdzv.ErrState, e.Key, err)
		}
	}
	if r := saved.record; r != nil && (saved.job == nil || len(r.Members) == 0) {
		return saved, fmt.Errorf("%w: round %d has no job or no members", rdzv.ErrState, r.Round)
	}
	return saved, nil
}

// readState reads what earlier leaders have left in the store.
func (d *leaderDriver) readState(ctx context.Context) (savedState, error) {
	saved, err := d.readRun(ctx)
	if err != nil {
		return saved, err
	}
	answers, err := listKeys(ctx, d.store, d.prefix+prefixAnswer)
	for _, e := range answers {
		a := savedAnswer{id: coord.SessionID(strings.TrimPrefix(e.Key, d.prefix+prefixAnswer))}
		if err := json.Unmarshal(e.Value, &a.answer); err != nil {
			return saved, fmt.Errorf("%w: %s: %w", rdzv.ErrState, e.Key, err)
		}
		saved.answers = append(saved.answers, a)
	}
	return saved, err
}

// errListed ends the watch of listKeys.
var errListed = errors.New("listed")

// listKeys returns the keys below prefix and their values as of now.
func listKeys(ctx context.Context, store coord.Store, prefix string) (events []coord.Event, err error) {
	err = store.Watch(ctx, prefix, func(b coord.Batch) error {
		events = b.Events
		return errListed
	})
	if errors.Is(err, errListed) {
		err = nil
	}
	return events, err
}
