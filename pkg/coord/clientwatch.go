package coord

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
)

// clientWatch is a watch of a Client.
type clientWatch struct {
	prefix  string
	changed chan struct{}
	merger  batchMerger // guarded by the client's mu
}

// Watch calls handle with all keys that begin with prefix, and then with each change. If the session is lost, Watch
// first handles the changes that arrived before the loss, unless Close has ended the session.
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
		case <-w.changed:
		}
		c.mu.Lock()
		b, ok := w.merger.take()
		lost := c.err // set after all changes that arrived before the loss were added
		c.mu.Unlock()
		if ok && !errors.Is(lost, errClosed) && ctx.Err() == nil {
			if err := handle(b); err != nil {
				return err
			}
		}
		if lost != nil {
			return lost
		}
	}
}

func (c *Client) unwatch(number int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.watches, number)
	if c.conn != nil {
		_ = c.conn.send(appendNumbered(nil, kindUnwatch, number)) // if this fails, the client ignores these batches
	}
}

// batchMerger merges batches until take. It keeps only the last change of each key. So it never holds more keys than
// the receiver knows plus the store has. The zero value is empty.
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
	known bool // the receiver knows the key from an earlier batch
}

// add adds a part of a batch. It reports whether a batch can be taken, which is false until the last part.
func (m *batchMerger) add(p batchPart) bool {
	if p.batch.Resync && !m.partial {
		m.events = nil
		m.resync = true
	}
	m.pending, m.partial = true, p.more
	m.revision = p.batch.Revision
	if m.events == nil {
		m.events = make(map[string]mergedEvent, len(p.batch.Events))
	}
	for i, e := range p.batch.Events {
		known := !p.fresh[i]
		if before, ok := m.events[e.Key]; ok {
			known = before.known
		}
		known = known && !m.resync
		if e.Deleted && !known {
			delete(m.events, e.Key)
			continue
		}
		m.seq++
		m.events[e.Key] = mergedEvent{Event: e, seq: m.seq, known: known}
	}
	return !m.partial
}

// dropPartial discards an incomplete batch. A Resync must follow.
func (m *batchMerger) dropPartial() {
	if m.partial {
		*m = batchMerger{}
	}
}

// take returns everything that was added as one batch; ok is false if nothing was added.
func (m *batchMerger) take() (b Batch, ok bool) {
	if !m.pending || m.partial {
		return Batch{}, false
	}
	events := slices.AppendSeq(make([]mergedEvent, 0, len(m.events)), maps.Values(m.events))
	slices.SortFunc(events, func(a, b mergedEvent) int { return cmp.Compare(a.seq, b.seq) })
	b = Batch{Revision: m.revision, Resync: m.resync}
	for _, e := range events {
		b.Events = append(b.Events, e.Event)
	}
	*m = batchMerger{}
	return b, b.Resync || len(b.Events) > 0
}
