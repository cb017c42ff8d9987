package coord

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestBatchMergerLosesNothing connects a core's watch to a slow receiver, through parts and interruptions. In the end
// the receiver must know the contents of the store.
func TestBatchMergerLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCore()
		s := c.openSession("s", "", 0, 0)
		w := c.watch("", func() {})
		var g batchMerger
		sent := map[string]Event{} // what was sent
		known := map[string]Event{}
		apply := func(to map[string]Event, b Batch) {
			if b.Resync {
				clear(to)
			}
			for _, e := range b.Events {
				if delete(to, e.Key); !e.Deleted {
					to[e.Key] = e
				}
			}
		}
		key := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		t.Repeat(map[string]func(*rapid.T){
			"commit": func(t *rapid.T) {
				op := Op{Key: key.Draw(t, "key"), Delete: rapid.Bool().Draw(t, "delete")}
				if _, err := c.commit(s, nil, []Op{op}, 0); err != nil {
					t.Fatal(err)
				}
			},
			"resume": func(*rapid.T) {
				c.unwatch(w)
				w = c.watch("", func() {})
				g.dropPartial()
			},
			"send": func(t *rapid.T) {
				b, fresh, ok := c.take(w)
				if !ok {
					t.Skip("nothing to send")
				}
				apply(sent, b)
				n := rapid.IntRange(0, len(b.Events)).Draw(t, "split")
				first := batchPart{batch: b, fresh: fresh[:n], more: true}
				first.batch.Events = b.Events[:n]
				if g.add(first) {
					t.Fatal("half a batch can be taken")
				}
				if _, ok := g.take(); ok {
					t.Fatal("half a batch was taken")
				}
				if rapid.IntRange(0, 9).Draw(t, "break") == 0 {
					c.unwatch(w)
					w = c.watch("", func() {})
					g.dropPartial()
					return
				}
				last := batchPart{batch: b, fresh: fresh[n:]}
				last.batch.Events = b.Events[n:]
				if !g.add(last) {
					t.Fatal("a whole batch cannot be taken")
				}
			},
			"take": func(t *rapid.T) {
				if b, ok := g.take(); ok {
					for _, e := range b.Events {
						if _, have := known[e.Key]; e.Deleted && !have {
							t.Fatalf("unknown key %q is deleted", e.Key)
						}
					}
					apply(known, b)
				}
			},
			"": func(t *rapid.T) {
				if len(g.events) > len(known)+len(sent) {
					t.Fatalf("%d keys are kept, of %d and %d", len(g.events), len(known), len(sent))
				}
				if b, fresh, ok := c.take(w); ok {
					apply(sent, b)
					g.add(batchPart{batch: b, fresh: fresh})
				}
				if g.pending {
					return
				}
				if diff := cmp.Diff(c.entriesAsEvents(), known); diff != "" {
					t.Fatalf("known (-want +got):\n%s", diff)
				}
			},
		})
	})
}

// entriesAsEvents returns all keys.
func (c *core) entriesAsEvents() map[string]Event {
	all := map[string]Event{}
	for key, e := range c.entries {
		all[key] = e.event()
	}
	return all
}

func TestBatchMergerKeepsOrder(t *testing.T) {
	var g batchMerger
	for i, key := range []string{"c", "a", "b", "a"} {
		g.add(batchPart{batch: Batch{Revision: Revision(i + 1), Events: []Event{{Key: key, Create: 1}}}, fresh: []bool{true}})
	}
	b, ok := g.take()
	want := Batch{Revision: 4, Events: []Event{{Key: "c", Create: 1}, {Key: "b", Create: 1}, {Key: "a", Create: 1}}}
	if diff := cmp.Diff(want, b); diff != "" || !ok {
		t.Errorf("batch (-want +got):\n%s", diff)
	}
}
