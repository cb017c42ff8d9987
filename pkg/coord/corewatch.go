package coord

import (
	"slices"
)

// watcher is one watch of a core. It remembers which keys have changed, not how: what it tells is read from the
// store when it is taken. So a slow one costs no more than the names of the keys that it knew or that there are,
// changes are merged by themselves, and no commit is ever split.
type watcher struct {
	prefix string
	// wake is called when there is something to take, once until it is taken.
	wake func()

	resync   bool // all keys are to be told; changed is empty then
	changed  map[string]change
	revision Revision // of the last commit that changed one
	index    int      // in watches.by[prefix]
	cost     int64    // what the budget counts for it
}

// change is a key of which a watcher is still to be told.
type change struct {
	seq   uint64 // orders the last changes of all keys
	known bool   // the watcher has been told of the key: it must hear if it is gone
}

// watches finds the watchers of a key. It looks once for each length that the watched prefixes have, so that any
// prefix will do, and what many clients watch, each a key named by its session, costs a commit no more than what one
// watches.
type watches struct {
	byPrefix map[string][]*watcher // by prefix
	lengths  []int                 // of the prefixes in by, in order
	counts   map[int]int           // how many have a length
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

// tell tells key's watchers that it has changed in the commit of that revision: whether it was there before, and is now.
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

// tell takes note that key has changed. It returns by how many keys w then has more, or fewer, to tell.
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
		c.known = before.known // what it was told last was before that
	}
	had := len(w.changed)
	if !c.known && !exists {
		delete(w.changed, key) // it came and went
	} else {
		w.changed[key] = c
	}
	return len(w.changed) - had
}

// forget makes w tell all keys that there are, in place of those that have changed. It returns how many those were.
func (w *watcher) requireResync() int {
	n := len(w.changed)
	w.changed, w.resync = nil, true
	return n
}

// watch begins a watch. The first batch, a Resync, is to be taken at once.
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

// take returns what w is still to be told, as one batch; ok is false if that is nothing. fresh says which events make
// a key of which w has never been told, or has been told that it is gone.
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
	keys := make([]string, 0, len(changed))
	for key := range changed {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if changed[a].seq < changed[b].seq {
			return -1
		}
		return 1
	})
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
