package elastic

import (
	"context"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// show writes what this agent is doing, at once and again and again, while somebody wants to see it: there is a key below
// prefixWatcher. Otherwise it writes nothing. What goes wrong is of no consequence: the next time comes.
func (d *driver) publishStatus(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	looked, ended := make(chan bool), make(chan error, 1)
	go func() { ended <- d.watchObservers(ctx, looked) }()
	ticker := time.NewTicker(d.statusInterval)
	ticker.Stop()
	defer ticker.Stop()
	for {
		select {
		case is := <-looked:
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

// watchLookers tells whenever the first looker has come or the last has gone.
func (d *driver) watchObservers(ctx context.Context, looked chan<- bool) error {
	there, told := map[string]bool{}, false
	return d.store.Watch(ctx, d.prefix+prefixWatcher, func(b coord.Batch) error {
		if b.Resync {
			clear(there)
		}
		for _, e := range b.Events {
			if e.Deleted {
				delete(there, e.Key)
			} else {
				there[e.Key] = true
			}
		}
		is := len(there) > 0
		if is == told {
			return nil
		}
		told = is
		select {
		case looked <- is:
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
	op := coord.Op{Key: d.prefix + prefixStatus + string(d.store.Session()), Value: value, Owned: true, Delete: value == nil}
	if _, err := d.store.Commit(bounded, nil, []coord.Op{op}); err != nil && ctx.Err() == nil {
		d.log.Debug().Err(err).Msg("the status is not written")
	}
}
