package membership

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func candidate(name string, incarnation uint64) *Record {
	return &Record{Name: name, Incarnation: incarnation}
}

func TestSnapshotApply(t *testing.T) {
	joins := func(name string, incarnation uint64) []byte {
		return encode(change{Kind: joined, Member: candidate(name, incarnation), By: incarnation})
	}
	goes := func(kind string, incarnation uint64) []byte {
		return encode(change{Kind: kind, Incarnation: incarnation})
	}
	type entry struct {
		name string
		id   int
	}
	for _, test := range []struct {
		name string
		log  [][]byte
		want []entry
		next int
	}{
		{"nobody", nil, nil, 0},
		{"in order", [][]byte{joins("a", 1), joins("b", 2)}, []entry{{"a", 0}, {"b", 1}}, 2},
		{"leave", [][]byte{joins("a", 1), joins("b", 2), goes(left, 1)}, []entry{{"b", 1}}, 2},
		{"evicted", [][]byte{joins("a", 1), joins("b", 2), goes(evicted, 2)}, []entry{{"a", 0}}, 2},
		{"ids are not reused", [][]byte{joins("a", 1), goes(left, 1), joins("a", 2)}, []entry{{"a", 1}}, 2},
		{"taken name", [][]byte{joins("a", 1), joins("a", 2)}, []entry{{"a", 0}}, 1},
		{"twice", [][]byte{joins("a", 1), joins("b", 1)}, []entry{{"a", 0}}, 1},
		{"unknown member leaves", [][]byte{joins("a", 1), goes(left, 7)}, []entry{{"a", 0}}, 1},
		{
			"invalid entries",
			[][]byte{joins("a", 1), []byte("{"), []byte(`{"kind":"?"}`), []byte(`{"kind":"join"}`)},
			[]entry{{"a", 0}},
			1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var r snapshot
			for _, e := range test.log {
				r = r.apply(e)
			}
			var got []entry
			for _, m := range r.Members {
				got = append(got, entry{m.Name, m.ID})
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(entry{})); diff != "" {
				t.Error(diff)
			}
			if r.NextID != test.next || r.Version != int64(len(test.log)) {
				t.Errorf("next id %d, version %d, want %d, %d", r.NextID, r.Version, test.next, len(test.log))
			}
		})
	}
}

// For all entries: ids increase and are not reused, names and incarnations are unique, older snapshots do not change,
// and a reader that starts from any snapshot gets the same result.
func TestSnapshotInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r snapshot
		var log [][]byte
		var all []snapshot
		given := map[int]uint64{}
		for range rapid.IntRange(0, 60).Draw(t, "entries") {
			incarnation := rapid.Uint64Range(1, 12).Draw(t, "incarnation")
			kind := rapid.SampledFrom([]string{joined, joined, left, evicted, "?"}).Draw(t, "kind")
			c := change{Kind: kind, Incarnation: incarnation}
			if c.Kind == joined {
				c.Member = candidate(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "name"), incarnation)
			}
			was, before := encode(r), r
			r = r.apply(encode(c))
			if string(encode(before)) != string(was) {
				t.Fatal("apply has changed the earlier snapshot")
			}
			log, all = append(log, encode(c)), append(all, r)
			checkSnapshot(t, r, before, given)
		}
		for i, start := range all {
			for _, e := range log[i+1:] {
				start = start.apply(e)
			}
			if diff := cmp.Diff(r, start); diff != "" {
				t.Fatalf("from entry %d: %s", i+1, diff)
			}
		}
	})
}

func checkSnapshot(t *rapid.T, r, before snapshot, given map[int]uint64) {
	t.Helper()
	names, incarnations := map[string]bool{}, map[uint64]bool{}
	for i, m := range r.Members {
		if i > 0 && m.ID <= r.Members[i-1].ID || m.ID >= r.NextID {
			t.Fatalf("ids do not rise: %v", r)
		}
		if names[m.Name] || incarnations[m.Incarnation] {
			t.Fatalf("not unique: %v", r)
		}
		names[m.Name], incarnations[m.Incarnation] = true, true
		if !before.has(m.Incarnation) {
			if _, twice := given[m.ID]; twice {
				t.Fatalf("id %d was used twice", m.ID)
			}
			given[m.ID] = m.Incarnation
		}
	}
}

func TestNeighbors(t *testing.T) {
	ring := []Record{{Name: "a", Incarnation: 1}, {Name: "b", Incarnation: 2}, {Name: "c", Incarnation: 3}}
	for _, test := range []struct {
		name       string
		members    []Record
		self       uint64
		prev, next string
	}{
		{"middle", ring, 2, "a", "c"},
		{"first", ring, 1, "c", "b"},
		{"last", ring, 3, "b", "a"},
		{"two", ring[:2], 1, "b", "b"},
		{"alone", ring[:1], 1, "", ""},
		{"not a member", ring, 9, "", ""},
		{"nobody", nil, 1, "", ""},
	} {
		prev, hasPrev := predecessor(test.members, test.self)
		next, hasNext := Successor(test.members, test.self)
		if prev.Name != test.prev || next.Name != test.next ||
			hasPrev != (test.prev != "") || hasNext != (test.next != "") {
			t.Errorf("%s: %q %v, %q %v", test.name, prev.Name, hasPrev, next.Name, hasNext)
		}
	}
}

// Two snapshots made from one do not share writes.
func TestSnapshotBranches(t *testing.T) {
	r := snapshot{}.with(candidate("a", 1)).with(candidate("b", 2)).with(candidate("c", 3))
	one, other := r.with(candidate("d", 4)), r.with(candidate("e", 5))
	if one.Members[3].Name != "d" || other.Members[3].Name != "e" {
		t.Errorf("%v, %v", one.Members, other.Members)
	}
}

// predecessor returns the member whose Successor is self.
func predecessor(members []Record, self uint64) (Record, bool) {
	members = slices.Clone(members)
	slices.Reverse(members)
	return Successor(members, self)
}
