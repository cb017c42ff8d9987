package elastic

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// AskStacks asks the agents of a round, as [ObserveStacks] does, in the agent's own session. It returns what is known
// when all have replied or ctx ends. The result is nil if this handler has no session until then.
//
// All nodes whose workers have finished may call it at about the same time, and in a large job only one of them should
// ask all agents. So AskStacks asks nobody and returns nil if the workers of an agent of a lower rank have finished and
// that agent is still there.
func (h *Handler) AskStacks(ctx context.Context, round, rank int) *Snapshot {
	replies := make(chan *Snapshot, 1)
	ask := func(session context.Context, d *driver) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		unregister := context.AfterFunc(session, cancel)
		defer unregister()
		if !d.asksFirst(ctx, round, rank) {
			replies <- nil
			return
		}
		replies <- d.askStacks(ctx)
		d.put(session, rounds.PrefixWatcher, nil)
	}
	select {
	case h.stackRequests <- ask:
	case <-h.driveDone:
		return nil
	case <-ctx.Done():
		return nil
	}
	return <-replies // soon after ctx ends
}

// serveStackRequests serves the calls of AskStacks during one session.
func (d *driver) serveStackRequests(ctx context.Context) error {
	for {
		select {
		case ask := <-d.stackRequests:
			ask(ctx, d)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// askStacks observes the run until all agents have replied or ctx ends. The key below rounds.PrefixWatcher stays.
func (d *driver) askStacks(ctx context.Context) (latest *Snapshot) {
	_ = newObserver(d.store, d.prefix).run(ctx, wish{Stacks: true}, func(s Snapshot) error {
		if latest = &s; s.Outcome != nil || s.HasStacks() {
			return errListed
		}
		return nil
	})
	return latest
}

// asksFirst reports whether no agent of a lower rank waits for the end of the round. If the store does not answer, it
// returns false.
func (d *driver) asksFirst(ctx context.Context, round, rank int) bool {
	events, err := listKeys(ctx, d.store, d.prefix+rounds.PrefixSucceeded+strconv.Itoa(round)+"/")
	if err != nil {
		return false
	}
	var all []*rounds.Successes
	for _, e := range events {
		if s := new(rounds.Successes); json.Unmarshal(e.Value, s) == nil && s.Chunk >= 0 {
			all = append(all, s)
		}
	}
	has := func(rank int) bool {
		return slices.ContainsFunc(all, func(s *rounds.Successes) bool {
			return s.Chunk == rank/rounds.SuccessChunk && s.Has(rank)
		})
	}
	var lower []int
	for r := range rank {
		if has(r) {
			lower = append(lower, r)
		}
	}
	if len(lower) == 0 {
		return true
	}
	record, err := d.readRecord(ctx, round)
	if err != nil || record == nil {
		return false
	}
	all = slices.DeleteFunc(all, func(s *rounds.Successes) bool { return !s.IsOf(record) })
	for _, r := range lower {
		if r >= len(record.Members) || !has(r) {
			continue
		}
		key := d.prefix + rounds.PrefixAgent + string(record.Members[r].ID)
		found, err := listKeys(ctx, d.store, key)
		if err != nil || slices.ContainsFunc(found, func(e coord.Event) bool { return e.Key == key }) {
			return false
		}
	}
	return true
}

// readRecord returns the record of a round; nil if there is none.
func (d *driver) readRecord(ctx context.Context, round int) (*rounds.Record, error) {
	key := d.prefix + rounds.RoundKey(round)
	events, err := listKeys(ctx, d.store, key)
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		if r := new(rounds.Record); e.Key == key && rounds.DecodeRecord(e.Value, r) == nil {
			return r, nil
		}
	}
	return nil, nil
}
