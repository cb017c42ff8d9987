package coord

import (
	"cmp"
	"context"
	"slices"
)

// clientWatch is a watch of a Client.
type clientWatch struct {
	prefix  string
	changed chan struct{}
	merger  batchMerger // guarded by the client's mu
}

func (w *clientWatch) notify() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Watch calls handle with all keys that begin with prefix, and then with each change.
func (c *Client) Watch(ctx context.Context, prefix string, handle func(Batch) error) error {
	w := &clientWatch{prefix: prefix, changed: make(chan struct{}, 1)}
	c.mu.Lock()
	c.lastNumber++
	number := c.lastNumber
	err := c.err
	if err == nil && c.conn != nil {
		err = c.conn.send(appendNumbered(nil, kindWatch, number, prefix))
	}
	if err == nil {
		c.watches[number] = w
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	defer c.unwatch(number)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.lost:
			return c.Err()
		case <-w.changed:
		}
		c.mu.Lock()
		b, ok := w.merger.take()
		lost := c.err != nil
		c.mu.Unlock()
		if ok && !lost && ctx.Err() == nil {
			if err := handle(b); err != nil {
				return err
			}
		}
	}
}

func (c *Client) unwatch(number int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.watches, number)
	if c.conn != nil {
		_ = c.conn.send(appendNumbered(nil, kindUnwatch, number)) // without it, the batches of this number are ignored
	}
}

// batchMerger merges batches until take. It keeps only the last change of each key, so it never holds more keys than
// the taker knows plus the store has. The zero value is empty.
type batchMerger struct {
	pending  bool // take has something to return
	resync   bool
	revision Revision
	events   map[string]mergedEvent
	seq      int
	partial  bool // the last batch is incomplete
}

type mergedEvent struct {
	Event
	seq   int
	known bool // the taker knows the key from an earlier batch
}

// add adds a part of a batch. It reports whether a batch can be taken, which is false until the last part.
func (g *batchMerger) add(p batchPart) bool {
	if p.batch.Resync && !g.partial {
		g.events = nil
		g.resync = true
	}
	g.pending, g.partial = true, p.more
	g.revision = p.batch.Revision
	if g.events == nil {
		g.events = make(map[string]mergedEvent, len(p.batch.Events))
	}
	for i, e := range p.batch.Events {
		known := !p.fresh[i]
		if before, ok := g.events[e.Key]; ok {
			known = before.known
		}
		known = known && !g.resync
		if e.Deleted && !known {
			delete(g.events, e.Key)
			continue
		}
		g.seq++
		g.events[e.Key] = mergedEvent{Event: e, seq: g.seq, known: known}
	}
	return !g.partial
}

// dropPartial discards an incomplete batch. A Resync must follow.
func (g *batchMerger) dropPartial() {
	if g.partial {
		*g = batchMerger{}
	}
}

// take returns everything that was added as one batch; ok is false if that is nothing.
func (g *batchMerger) take() (b Batch, ok bool) {
	if !g.pending || g.partial {
		return Batch{}, false
	}
	events := make([]mergedEvent, 0, len(g.events))
	for _, e := range g.events {
		events = append(events, e)
	}
	slices.SortFunc(events, func(a, b mergedEvent) int { return cmp.Compare(a.seq, b.seq) })
	b = Batch{Revision: g.revision, Resync: g.resync}
	for _, e := range events {
		b.Events = append(b.Events, e.Event)
	}
	*g = batchMerger{}
	return b, b.Resync || len(b.Events) > 0
}
