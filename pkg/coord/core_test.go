package coord

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestSessionEndsInOneBatch checks that the end of a session deletes all its keys in one commit and one batch.
func TestSessionEndsInOneBatch(t *testing.T) {
	c := newCore()
	s := c.openSession("s", "token", 10*time.Second, 0)
	var ops []Op
	for i := range MaxOps {
		ops = append(ops, Op{Key: fmt.Sprintf("k/%03d", i), Owned: true})
	}
	made, err := c.commit(s, nil, ops, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := c.watch("k/", func() {})
	c.take(w)
	if ended := c.expire(10*time.Second - 1); ended != nil {
		t.Errorf("ended too early: %v", ended)
	}
	if ended := c.expire(10 * time.Second); len(ended) != 1 || ended[0] != s {
		t.Errorf("ended %v", ended)
	}
	b, _, _ := c.take(w)
	if len(b.Events) != MaxOps || b.Revision != made+1 || c.revision != made+1 {
		t.Errorf("%d deletions at revision %d, of %d", len(b.Events), b.Revision, c.revision)
	}
	if _, err := c.commit(s, nil, []Op{{Key: "a"}}, 0); !errors.Is(err, ErrSessionLost) {
		t.Errorf("commit of a lost session: %v", err)
	}
}

// TestWatchersAreFoundByLength counts the lookups of a commit in a store with many watches.
func TestWatchersAreFoundByLength(t *testing.T) {
	c := newCore()
	s := c.openSession("s", "token", 0, 0)
	woken := 0
	for i := range 1000 {
		c.take(c.watch(fmt.Sprintf("answer/%04d", i), func() { woken++ }))
	}
	all := c.watch("", func() { woken++ })
	c.take(all)
	if got := len(c.watches.lengths); got != 2 {
		t.Errorf("a key is looked up %d times", got)
	}
	woken = 0
	if _, err := c.commit(s, nil, []Op{{Key: "answer/0500"}, {Key: "answer/05001"}, {Key: "answer"}}, 0); err != nil {
		t.Fatal(err)
	}
	if woken != 2 {
		t.Errorf("%d watches were woken, want 2", woken)
	}
	b, fresh, ok := c.take(all)
	want := Batch{Revision: 1, Events: []Event{
		{Key: "answer/0500", Create: 1}, {Key: "answer/05001", Create: 1}, {Key: "answer", Create: 1},
	}}
	if diff := cmp.Diff(want, b); diff != "" || !ok || !cmp.Equal(fresh, []bool{true, true, true}) {
		t.Errorf("batch (-want +got):\n%s, fresh %v", diff, fresh)
	}
	c.unwatch(all)
	if got := len(c.watches.lengths); got != 1 {
		t.Errorf("after the end of a watch a key is looked up %d times", got)
	}
}

// TestSlowWatchMerges checks what a watch delivers after many commits.
func TestSlowWatchMerges(t *testing.T) {
	c := newCore()
	s := c.openSession("s", "token", 0, 0)
	commit := func(ops ...Op) {
		t.Helper()
		if _, err := c.commit(s, nil, ops, 0); err != nil {
			t.Fatal(err)
		}
	}
	commit(Op{Key: "stays"}, Op{Key: "goes"}, Op{Key: "comes again"})
	w := c.watch("", func() {})
	c.take(w)
	for i := range 100 {
		commit(Op{Key: "new", Value: []byte{byte(i)}}, Op{Key: "goes", Delete: i == 50})
		commit(Op{Key: "passes"}, Op{Key: "comes again", Delete: true}, Op{Key: "goes", Delete: true})
		commit(Op{Key: "passes", Delete: true}, Op{Key: "comes again"})
	}
	b, fresh, ok := c.take(w)
	want := Batch{Revision: 301, Events: []Event{
		{Key: "new", Value: []byte{99}, Create: 2}, {Key: "goes", Deleted: true}, {Key: "comes again", Create: 301},
	}}
	if diff := cmp.Diff(want, b); diff != "" || !ok || !cmp.Equal(fresh, []bool{true, false, false}) {
		t.Errorf("batch (-want +got):\n%s, fresh %v", diff, fresh)
	}
	if _, _, ok := c.take(w); ok {
		t.Error("a second batch is available")
	}
}

func TestLongTTL(t *testing.T) {
	c := newCore()
	s := c.openSession("s", "token", 0, 0)
	if _, err := c.commit(s, nil, []Op{{Key: "k", TTL: 1<<63 - 1}}, time.Hour); err != nil {
		t.Fatal(err)
	}
	if c.expire(2 * time.Hour); c.entries["k"] == nil {
		t.Error("a key with the maximum TTL has expired")
	}
}

func BenchmarkCommit(b *testing.B) {
	c := newCore()
	s := c.openSession("s", "token", 0, 0)
	keys := make([]string, 9000)
	for i := range keys {
		keys[i] = fmt.Sprintf("elasticrun/run/answer/%026d", i)
		c.take(c.watch(keys[i], func() {}))
	}
	watches := map[string]*watcher{}
	for _, key := range keys {
		watches[key] = c.watches.byPrefix[key][0]
	}
	for i := 0; b.Loop(); i++ {
		key := keys[i%len(keys)]
		if _, err := c.commit(s, nil, []Op{{Key: key, Owned: true}}, 0); err != nil {
			b.Fatal(err)
		}
		c.take(watches[key])
	}
}
