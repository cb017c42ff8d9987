package elastic

import (
	"context"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// publishStatus writes what this agent is doing, at once and at intervals, while the run has an observer: a key below
// prefixWatcher. Without an observer it writes nothing. Failed writes have no consequence; the next one replaces them.
func (d *driver) publishStatus(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	observed, ended := make(chan bool), make(chan error, 1)
	go func() { ended <- d.watchObservers(ctx, observed) }()
	ticker := time.NewTicker(d.statusInterval)
	ticker.Stop()
	defer ticker.Stop()
	for {
		select {
		case is := <-observed:
			if !is {
				ticker.Stop()
				d.putStatus(ctx, nil)
				continue
			}
			ticker.Reset(d.statusInterval)
			d.putStatus(ctx, d.status(ctx))
		case <-ticker.C:
			d.putStatus(ctx, d.status(ctx))
		case err := <-ended:
			cancel()
			return err
		}
	}
}

// watchObservers sends true when the first observer has come, and false when the last one has left.
func (d *driver) watchObservers(ctx context.Context, observed chan<- bool) error {
	observers, sent := map[string]bool{}, false
	return d.store.Watch(ctx, d.prefix+prefixWatcher, func(b coord.Batch) error {
		if b.Resync {
			clear(observers)
		}
		for _, e := range b.Events {
			if e.Deleted {
				delete(observers, e.Key)
			} else {
				observers[e.Key] = true
			}
		}
		is := len(observers) > 0
		if is == sent {
			return nil
		}
		sent = is
		select {
		case observed <- is:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// putStatus writes the status; nil deletes it.
func (d *driver) putStatus(ctx context.Context, value []byte) {
	bounded, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	key := d.prefix + prefixStatus + string(d.store.Session())
	op := coord.Op{Key: key, Value: value, Owned: true, Delete: value == nil}
	if _, err := d.store.Commit(bounded, nil, []coord.Op{op}); err != nil && ctx.Err() == nil {
		d.log.Debug().Err(err).Msg("cannot write the status")
	}
}
