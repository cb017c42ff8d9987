package elastic

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// wish is what an observer wants of the agents: the value of its key below rounds.PrefixWatcher.
type wish struct {
	// Stacks asks for the stacks of the workers instead of the agents' status; StacksRequest says how.
	Stacks bool `json:"stacks,omitempty"`
	rounds.StacksRequest
}

// wishes combines what all observers want.
type wishes struct {
	status    bool
	stacksFor []coord.SessionID    // the observers that ask for stacks, sorted
	request   rounds.StacksRequest // what any of them asks for
}

// stacksReply is the value of an agent's key below rounds.PrefixStacks.
type stacksReply struct {
	For    []coord.SessionID `json:"for"` // the observers that had asked before the stacks were read
	Stacks []byte            `json:"stacks"`
}

// publishStatus writes what this agent is doing, at once and at intervals, while the run has an observer: a key below
// rounds.PrefixWatcher. It writes the stacks of the workers once for each observer that asks for them. Without an
// observer it writes nothing. Failed writes have no consequence; the next one replaces them.
func (d *driver) publishStatus(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	changes, ended := make(chan wishes), make(chan error, 1)
	go func() { ended <- d.watchObservers(ctx, changes) }()
	ticker := time.NewTicker(d.statusInterval)
	ticker.Stop()
	defer ticker.Stop()
	var last wishes
	for {
		select {
		case now := <-changes:
			switch {
			case !now.status && last.status:
				ticker.Stop()
				d.put(ctx, rounds.PrefixStatus, nil)
			case now.status && !last.status:
				ticker.Reset(d.statusInterval)
				d.put(ctx, rounds.PrefixStatus, d.status(ctx))
			}
			if d.stacks != nil {
				d.publishStacks(ctx, now, last.stacksFor)
			}
			last = now
		case <-ticker.C:
			d.put(ctx, rounds.PrefixStatus, d.status(ctx))
		case err := <-ended:
			cancel()
			return err
		}
	}
}

// publishStacks writes the workers' stacks if somebody asks who did not ask before, and deletes them if nobody does.
func (d *driver) publishStacks(ctx context.Context, now wishes, before []coord.SessionID) {
	isNew := func(id coord.SessionID) bool { return !slices.Contains(before, id) }
	switch {
	case len(now.stacksFor) == 0 && len(before) > 0:
		d.put(ctx, rounds.PrefixStacks, nil)
	case slices.ContainsFunc(now.stacksFor, isNew):
		reply, _ := json.Marshal(stacksReply{now.stacksFor, d.stacks(ctx, now.request)}) // cannot fail
		d.put(ctx, rounds.PrefixStacks, reply)
	}
}

// watchObservers sends what the observers want, at first and after each change.
func (d *driver) watchObservers(ctx context.Context, changes chan<- wishes) error {
	observers, sent := map[string]wish{}, wishes{}
	return d.store.Watch(ctx, d.prefix+rounds.PrefixWatcher, func(b coord.Batch) error {
		if b.Resync {
			clear(observers)
		}
		for _, e := range b.Events {
			if e.Deleted {
				delete(observers, e.Key)
				continue
			}
			var w wish
			_ = json.Unmarshal(e.Value, &w) // a value that cannot be decoded still shows an observer
			observers[e.Key] = w
		}
		now := d.combine(observers)
		if reflect.DeepEqual(now, sent) {
			return nil
		}
		sent = now
		select {
		case changes <- now:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// combine returns what the observers want together, by their keys.
func (d *driver) combine(observers map[string]wish) wishes {
	var all wishes
	for key, w := range observers {
		if w.Look && strings.HasSuffix(key, "/"+string(d.store.Session())) { // it looks at its own workers by itself
			continue
		}
		if !w.Stacks {
			all.status = true
			continue
		}
		all.stacksFor = append(all.stacksFor, coord.SessionID(key[len(d.prefix+rounds.PrefixWatcher):]))
		all.request.AllThreads = all.request.AllThreads || w.AllThreads
		all.request.Look = all.request.Look || w.Look
	}
	slices.Sort(all.stacksFor)
	return all
}

// put writes this agent's key below a prefix; nil deletes it.
func (d *driver) put(ctx context.Context, prefix string, value []byte) {
	bounded, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	key := d.prefix + prefix + string(d.store.Session())
	op := coord.Op{Key: key, Value: value, Owned: true, Delete: value == nil}
	if _, err := d.store.Commit(bounded, nil, []coord.Op{op}); err != nil && ctx.Err() == nil {
		d.log.Debug().Err(err).Str("key", prefix).Msg("cannot write what an observer asks for")
	}
}
