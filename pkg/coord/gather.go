package coord

import (
	"cmp"
	"slices"
)

// gather merges batches until they are taken, a key's last change standing for all. It never holds more keys than are
// known to who takes and than there are. Its zero value is empty.
type gather struct {
	some     bool // there is something to take
	resync   bool
	revision Revision
	events   map[string]gathered
	seq      int
	partial  bool // the last batch is not complete
}

type gathered struct {
	Event
	seq   int
	known bool // who takes has been told of the key
}

// add adds a part of a batch. It returns whether there is something to take, which is not so in the midst of a batch.
func (g *gather) add(p batchPart) bool {
	if p.batch.Resync && !g.partial {
		g.events = nil
		g.resync = true
	}
	g.some, g.partial = true, p.more
	g.revision = p.batch.Revision
	if g.events == nil {
		g.events = make(map[string]gathered, len(p.batch.Events))
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
		g.events[e.Key] = gathered{Event: e, seq: g.seq, known: known}
	}
	return !g.partial
}

// cut forgets a batch that did not come in full: a Resync will follow.
func (g *gather) cut() {
	if g.partial {
		*g = gather{}
	}
}

// take returns all that has come as one batch; ok is false if that is nothing.
func (g *gather) take() (b Batch, ok bool) {
	if !g.some || g.partial {
		return Batch{}, false
	}
	events := make([]gathered, 0, len(g.events))
	for _, e := range g.events {
		events = append(events, e)
	}
	slices.SortFunc(events, func(a, b gathered) int { return cmp.Compare(a.seq, b.seq) })
	b = Batch{Revision: g.revision, Resync: g.resync}
	for _, e := range events {
		b.Events = append(b.Events, e.Event)
	}
	*g = gather{}
	return b, b.Resync || len(b.Events) > 0
}
