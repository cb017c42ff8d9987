package membership

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// appendJoin commits the join of one worker unless it is a member.
func appendJoin(ctx context.Context, l changeLog, from snapshot, incarnation uint64) (snapshot, error) {
	return l.commit(ctx, from, func(r snapshot) (*change, error) {
		if r.has(incarnation) {
			return nil, nil //nolint:nilnil // Nothing to do is no error.
		}
		return &change{Kind: joined, Member: candidate(fmt.Sprintf("w%d", incarnation), incarnation)}, nil
	})
}

func appendJoins(t *testing.T, l changeLog, first, last uint64) snapshot {
	t.Helper()
	var r snapshot
	for i := first; i <= last; i++ {
		var err error
		if r, err = appendJoin(t.Context(), l, r, i); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// pad commits n entries that change nothing.
func pad(t *testing.T, l changeLog, r snapshot, n int) snapshot {
	t.Helper()
	for range n {
		end := r.Version + 1
		var err error
		r, err = l.commit(t.Context(), r, func(r snapshot) (*change, error) {
			if r.Version >= end {
				return nil, nil //nolint:nilnil // Nothing to do is no error.
			}
			return &change{Kind: left, Incarnation: 1 << 40}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// Many writers commit at once, each from an empty snapshot. Each commit is in the log once.
func TestLogCommitsOfMany(t *testing.T) {
	l := changeLog{kvstore.NewHashStore()}
	var running sync.WaitGroup
	for writer := range uint64(8) {
		running.Go(func() { appendJoins(t, l, writer*100+1, writer*100+25) })
	}
	running.Wait()
	r, err := l.read(t.Context())
	if err != nil || r.Version != 200 || len(r.Members) != 200 || r.NextID != 200 {
		t.Errorf("version %d, %d members, next id %d, %v", r.Version, len(r.Members), r.NextID, err)
	}
}

// A snapshot so old that the next entry is deleted does not create an entry there.
func TestLogCommitFromFarBehind(t *testing.T) {
	l := changeLog{kvstore.NewHashStore()}
	old := appendJoins(t, l, 1, 5)
	now := pad(t, l, appendJoins(t, l, 6, 6), 2*keptEntries)
	if gone, _ := l.store.Check(t.Context(), entryKey(6)); gone {
		t.Fatal("entry 6 is still there")
	}
	r, err := appendJoin(t.Context(), l, old, 9999)
	if err != nil || r.Version != now.Version+1 || !r.has(9999) || !r.has(6) {
		t.Errorf("version %d after %d, %v", r.Version, now.Version, err)
	}
	if there, _ := l.store.Check(t.Context(), entryKey(6)); there {
		t.Error("a deleted entry was created again")
	}
	if again, err := l.read(t.Context()); err != nil || again.Version != r.Version {
		t.Errorf("read %d after %d, %v", again.Version, r.Version, err)
	}
}

// If a writer dies during prune, the next writer deletes the rest. Readers always find the entries they need.
func TestLogPruneInterrupted(t *testing.T) {
	for n := 1; n <= 12; n++ {
		for _, how := range []outcome{failed, unanswered} {
			store := newFaultStore(kvstore.NewHashStore())
			l := changeLog{store}
			r := pad(t, l, snapshot{}, keptEntries+4)
			store.setAt(n, how)
			for i := range uint64(3) {
				appendJoin(t.Context(), l, r, 1+i) // One of them fails.
			}
			store.set(nil)
			if r, err := appendJoin(t.Context(), l, r, 9999); err != nil || !r.has(9999) {
				t.Fatal(err)
			}
			if keys, _ := store.NumKeys(t.Context()); keys > keptEntries+3 {
				t.Errorf("operation %d: %d keys", n, keys)
			}
		}
	}
}

// The log overtakes a reader, so that its next entry is deleted before it reads it. The reader does not take this for
// the end.
func TestLogReadOvertaken(t *testing.T) {
	inner := kvstore.NewHashStore()
	start := appendJoins(t, changeLog{inner}, 1, 3)
	store := newFaultStore(inner)
	store.set(func(count int) outcome {
		if count == 2 { // It has read the stored snapshot and asks for the next entry.
			pad(t, changeLog{inner}, start, 2*keptEntries)
		}
		return carriedOut
	})
	r, err := changeLog{store}.read(t.Context())
	if err != nil || r.Version != start.Version+2*keptEntries || len(r.Members) != 3 {
		t.Errorf("version %d, after %d at first, %v", r.Version, start.Version, err)
	}
}

func TestLogOfAnotherProgram(t *testing.T) {
	l := changeLog{kvstore.NewHashStore()}
	l.store.Set(t.Context(), snapshotKey, []byte("mine"))
	if _, err := l.read(t.Context()); err == nil || !strings.Contains(err.Error(), `read key "roster"`) {
		t.Error(err)
	}
}

func FuzzSnapshotApply(f *testing.F) {
	f.Add(encode(change{Kind: joined, Member: candidate("b", 2)}))
	f.Add(encode(change{Kind: left, Incarnation: 1}))
	f.Add([]byte(`{"kind":"evict","incarnation":"1"}`))
	f.Add([]byte(`{"kind":"join","member":{"devices":["cuda:-"]}}`))
	f.Fuzz(func(t *testing.T, entry []byte) {
		start := snapshot{}.with(candidate("a", 1))
		r := start.apply(entry)
		if r.Version != 1 || len(r.Members) > 2 || len(start.Members) != 1 || r.NextID < start.NextID {
			t.Errorf("%+v", r)
		}
	})
}

func FuzzParseLockState(f *testing.F) {
	for _, text := range []string{
		"", "1 0 0", "18446744073709551615 ffffffffffffffff 7", "1 2", "01 2 3", "1 2 3 4", "-1 2 3", "1 A 3",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseLockState(text)
		if err == nil && text != "" && h.String() != text {
			t.Errorf("%q is read as %q", text, h)
		}
	})
}
