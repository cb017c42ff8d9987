package coord

import (
	"cmp"
	"maps"
	"slices"
)

// watcher is one watch of a core. It records which keys have changed, not their values: take reads the values from the
// store. So a slow watch costs only the names of keys, both those that it has delivered and those that exist. Changes
// of one key merge, and no commit is ever split.
type watcher struct {
	prefix string
	// wake is called when a batch becomes available, once until the next take.
	wake func()

	resync   bool // the next batch contains all keys; changed is then empty
	changed  map[string]change
	revision Revision // of the last commit that changed a watched key
	index    int      // position in watches.byPrefix[prefix]
	cost     int64    // the bytes that the budget counts for this watch
}

// change is a changed key that the watch has not delivered yet.
type change struct {
	seq   uint64 // orders the keys by their latest change
	known bool   // the watch has delivered the key, so it must also deliver its deletion
}

// watches finds the watchers of a key. It makes one map lookup for each distinct length of the watched prefixes. Any
// prefix is allowed. Thousands of prefixes of equal length, such as one key for each session, cost a commit no more
// than one prefix.
type watches struct {
	byPrefix map[string][]*watcher
	lengths  []int       // the distinct lengths of the prefixes, ascending
	counts   map[int]int // the number of prefixes of each length
	seq      uint64
}

func (ws *watches) add(w *watcher) {
	if ws.byPrefix == nil {
		ws.byPrefix, ws.counts = map[string][]*watcher{}, map[int]int{}
	}
	same := ws.byPrefix[w.prefix]
	if len(same) == 0 {
		n := len(w.prefix)
		if ws.counts[n]++; ws.counts[n] == 1 {
			at, _ := slices.BinarySearch(ws.lengths, n)
			ws.lengths = slices.Insert(ws.lengths, at, n)
		}
	}
	w.index = len(same)
	ws.byPrefix[w.prefix] = append(same, w)
}

func (ws *watches) remove(w *watcher) {
	same := ws.byPrefix[w.prefix]
	last := len(same) - 1
	same[w.index] = same[last]
	same[w.index].index = w.index
	same[last] = nil
	if last > 0 {
		ws.byPrefix[w.prefix] = same[:last]
		return
	}
	delete(ws.byPrefix, w.prefix)
	n := len(w.prefix)
	if ws.counts[n]--; ws.counts[n] == 0 {
		delete(ws.counts, n)
		at, _ := slices.BinarySearch(ws.lengths, n)
		ws.lengths = slices.Delete(ws.lengths, at, at+1)
	}
}

// notify records for key's watchers that the commit of revision has changed key. existed and exists tell whether the
// key existed before the commit and exists after it.
func (ws *watches) notify(b *budget, key string, existed, exists bool, revision Revision) {
	ws.seq++
	for _, n := range ws.lengths {
		if n > len(key) {
			return
		}
		for _, w := range ws.byPrefix[key[:n]] {
			b.changes += w.recordChange(key, change{seq: ws.seq, known: existed}, exists, revision)
			if b.maxChanges > 0 && b.changes > b.maxChanges {
				b.changes -= w.requireResync()
			}
		}
	}
}

// recordChange records that key has changed. It returns the change of the number of undelivered keys, which may be
// negative.
func (w *watcher) recordChange(key string, c change, exists bool, revision Revision) int {
	w.revision = revision
	if w.resync {
		return 0
	}
	if w.changed == nil {
		w.changed = map[string]change{}
		w.wake()
	}
	before, ok := w.changed[key]
	if ok {
		c.known = before.known // the last delivery was before that change
	}
	had := len(w.changed)
	if !c.known && !exists {
		delete(w.changed, key) // created and deleted between two deliveries
	} else {
		w.changed[key] = c
	}
	return len(w.changed) - had
}

// requireResync replaces the recorded changes by a Resync. It returns how many keys were recorded.
func (w *watcher) requireResync() int {
	n := len(w.changed)
	w.changed, w.resync = nil, true
	return n
}

// watch begins a watch. Its first batch, a Resync, is available at once.
func (c *core) watch(prefix string, wake func()) *watcher {
	w := &watcher{prefix: prefix, wake: wake, resync: true, revision: c.revision, cost: int64(watchSize + len(prefix))}
	c.watches.add(w)
	c.budget.stored += w.cost
	wake()
	return w
}

// unwatch ends a watch.
func (c *core) unwatch(w *watcher) {
	c.watches.remove(w)
	c.budget.stored -= w.cost
	c.budget.changes -= len(w.changed)
	w.changed = nil
}

// take returns the undelivered changes of w as one batch; ok is false without changes. fresh marks the events of keys
// that the watch has never delivered, or has delivered as deleted.
func (c *core) take(w *watcher) (b Batch, fresh []bool, ok bool) {
	if w.resync {
		b.Resync, b.Revision = true, c.revision
		c.order.each(w.prefix, func(key string) {
			b.Events = append(b.Events, c.entries[key].event())
		})
		w.resync = false
		return b, make([]bool, len(b.Events)), true
	}
	if w.changed == nil {
		return Batch{}, nil, false
	}
	changed := w.changed
	w.changed = nil
	c.budget.changes -= len(changed)
	keys := slices.AppendSeq(make([]string, 0, len(changed)), maps.Keys(changed))
	slices.SortFunc(keys, func(a, b string) int { return cmp.Compare(changed[a].seq, changed[b].seq) })
	for _, key := range keys {
		known := changed[key].known
		if e := c.entries[key]; e != nil {
			b.Events = append(b.Events, e.event())
		} else {
			b.Events = append(b.Events, Event{Key: key, Deleted: true})
		}
		fresh = append(fresh, !known)
	}
	b.Revision = w.revision
	return b, fresh, len(b.Events) > 0
}
