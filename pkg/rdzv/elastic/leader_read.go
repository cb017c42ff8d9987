package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// readRun reads what earlier leaders have left in the store, without their answers.
func (d *leaderDriver) readRun(ctx context.Context) (saved rounds.SavedState, err error) {
	state, err := listKeys(ctx, d.store, d.prefix+rounds.PrefixState)
	if err != nil {
		return saved, err
	}
	for _, e := range state {
		key := strings.TrimPrefix(e.Key, d.prefix)
		switch {
		case strings.HasPrefix(key, rounds.PrefixJob):
			var job rounds.Job
			if err = json.Unmarshal(e.Value, &job); err == nil {
				err = saved.AddJob(key, e.Create, job)
			}
		case key == rounds.KeyResult:
			saved.Outcome, saved.History.ResultRevision = new(rdzv.Outcome), e.Create
			err = json.Unmarshal(e.Value, saved.Outcome)
		case key == rounds.KeyFinished:
			err = json.Unmarshal(e.Value, &saved.History.Finished)
		case key == rounds.KeyPast:
			err = json.Unmarshal(e.Value, &saved.History.Past)
		case key == rounds.KeyPreempted:
			saved.Preemption = new(rdzv.Preemption)
			err = json.Unmarshal(e.Value, saved.Preemption)
		case key == rounds.KeyWaiting:
			err = json.Unmarshal(e.Value, &saved.Waiting)
		case strings.HasPrefix(key, rounds.PrefixDeparted):
			var d rounds.DepartedMember
			err = json.Unmarshal(e.Value, &d)
			saved.Departed = append(saved.Departed, d)
		case strings.HasPrefix(key, rounds.PrefixSucceeded):
			var s rounds.Successes
			err = json.Unmarshal(e.Value, &s)
			saved.Succeeded = append(saved.Succeeded, s)
		case strings.HasPrefix(key, rounds.PrefixRound):
			r := new(rounds.Record)
			if err = rounds.DecodeRecord(e.Value, r); err == nil && (saved.Record == nil || r.Round > saved.Record.Round) {
				saved.Record = r
			}
		}
		if err != nil {
			return saved, fmt.Errorf("%w: %s: %w", rdzv.ErrState, e.Key, err)
		}
	}
	if r := saved.Record; r != nil && (saved.Job == nil || len(r.Members) == 0) {
		return saved, fmt.Errorf("%w: round %d has no job or no members", rdzv.ErrState, r.Round)
	}
	return saved, nil
}

// readState reads what earlier leaders have left in the store.
func (d *leaderDriver) readState(ctx context.Context) (rounds.SavedState, error) {
	saved, err := d.readRun(ctx)
	if err != nil {
		return saved, err
	}
	answers, err := listKeys(ctx, d.store, d.prefix+rounds.PrefixAnswer)
	for _, e := range answers {
		a := rounds.SavedAnswer{ID: coord.SessionID(strings.TrimPrefix(e.Key, d.prefix+rounds.PrefixAnswer))}
		if err := json.Unmarshal(e.Value, &a.Answer); err != nil {
			return saved, fmt.Errorf("%w: %s: %w", rdzv.ErrState, e.Key, err)
		}
		saved.Answers = append(saved.Answers, a)
	}
	return saved, err
}

// errListed ends a watch whose caller has seen what it wanted, such as that of listKeys.
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
