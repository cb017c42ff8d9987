package elastic

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// The leader itself ends a round for the nodes that wait, so agents do not need to know how many there are. The leader
// writes the number whenever it changes, and a handler reads it only for a caller of NumNodesWaiting.

// waitingNodes is the number of waiting nodes, as a handler knows it.
type waitingNodes struct {
	once  sync.Once
	asked chan struct{} // closed by the first call of NumNodesWaiting
	count atomic.Int64
}

// NumNodesWaiting implements rdzv.Handler. The first call begins to watch the number; until the store has answered, the
// result is 0. It is also 0 while the handler has no session.
func (h *Handler) NumNodesWaiting() int {
	h.waiting.once.Do(func() { close(h.waiting.asked) })
	return int(h.waiting.count.Load())
}

// watchWaiting keeps the number of waiting nodes up to date during one session, once somebody has asked for it.
func (d *driver) watchWaiting(ctx context.Context) error {
	w, key := d.waiting, d.prefix+rounds.KeyWaiting
	defer w.count.Store(0)
	select {
	case <-w.asked:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return d.store.Watch(ctx, key, func(b coord.Batch) error {
		if b.Resync {
			w.count.Store(0)
		}
		for _, e := range b.Events {
			n := 0
			if e.Key != key {
				continue
			}
			if err := json.Unmarshal(e.Value, &n); err != nil && !e.Deleted {
				d.log.Warn().Err(err).Msg("cannot decode the number of waiting nodes")
			}
			w.count.Store(int64(n))
		}
		return nil
	})
}
