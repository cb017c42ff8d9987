package rounds

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// candidatesOf makes candidates of "identity@host#hint" in the order of their arrival; #hint may be missing.
func candidatesOf(texts ...string) []candidate {
	var out []candidate
	for i, text := range texts {
		c := candidate{arrived: coord.Revision(i + 1), node: Node{Hint: -1, Nproc: 1}}
		if before, hint, ok := strings.Cut(text, "#"); ok {
			text = before
			if _, err := fmt.Sscan(hint, &c.node.Hint); err != nil {
				panic(err)
			}
		}
		c.node.Identity, c.node.Host, _ = strings.Cut(text, "@")
		c.id = coord.SessionID("s-" + c.node.Identity)
		c.node.Host = cmp.Or(c.node.Host, c.node.Identity)
		out = append(out, c)
	}
	return out
}

func identities(cs []candidate) string {
	var out []string
	for _, c := range cs {
		out = append(out, c.node.Identity)
	}
	return strings.Join(out, " ")
}

func TestRankMembers(t *testing.T) {
	for _, c := range []struct {
		name       string
		before     string // identities; "x*" now has another session
		candidates []candidate
		limit      int
		want       string
	}{
		{"first round, by host", "", candidatesOf("a@node10", "b@node2", "c@node1"), 9, "c b a"},
		{"first round, hints before hosts", "", candidatesOf("a@node1", "b@node2#1", "c@node3#0"), 9, "c b a"},
		{"first round, the first to arrive are in", "", candidatesOf("c@3", "b@2", "a@1"), 2, "b c"},
		{"survivors keep their order", "c a b", candidatesOf("a", "b", "c"), 9, "c a b"},
		{"a gap is closed", "c a b", candidatesOf("b", "c"), 9, "c b"},
		{"a spare takes the lost rank", "c a b", candidatesOf("b", "c", "x"), 9, "c x b"},
		{"a returning identity takes its rank", "c a* b", candidatesOf("x", "b", "c", "a"), 3, "c a b"},
		{"a returning identity, before a spare that came earlier", "c a* b", candidatesOf("x", "b", "c", "a"), 4, "c a b x"},
		{"newcomers come last", "b a", candidatesOf("y@2", "b", "a", "x@1"), 9, "b a x y"},
		{"no more than the limit, survivors first", "b a", candidatesOf("y@2", "b", "a", "x@1"), 3, "b a y"},
		{"no member is left", "b a", candidatesOf("y@2", "x@1"), 9, "x y"},
		{"no candidates", "b a", nil, 9, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before []RecordMember
			for name := range strings.FieldsSeq(c.before) {
				name, changed := strings.CutSuffix(name, "*")
				p := RecordMember{ID: coord.SessionID("s-" + name), Identity: name}
				if changed {
					p.ID = "s-old"
				}
				before = append(before, p)
			}
			if got := identities(rankMembers(before, c.candidates, c.limit)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestRankMembersProperties checks that no candidate appears twice, that as many as possible are in, that members of
// the round before are in and keep their order, and that the order of the candidates does not matter.
func TestRankMembersProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.Permutation(strings.Split("abcdefghijkl", "")).Draw(t, "names")
		candidates := candidatesOf(names[:rapid.IntRange(0, 9).Draw(t, "candidates")]...)
		var before []RecordMember
		for _, name := range rapid.Permutation(names).Draw(t, "before")[:rapid.IntRange(0, 6).Draw(t, "members")] {
			before = append(before, RecordMember{ID: coord.SessionID("s-" + name), Identity: name})
		}
		survivors := slices.DeleteFunc(slices.Clone(before), func(p RecordMember) bool {
			return !slices.ContainsFunc(candidates, func(c candidate) bool { return c.id == p.ID })
		})
		limit := max(1, len(survivors)) + rapid.IntRange(0, 4).Draw(t, "room")
		got := rankMembers(before, candidates, limit)
		if len(got) != min(limit, len(candidates)) {
			t.Fatalf("%d members of %d candidates, limit %d", len(got), len(candidates), limit)
		}
		at := map[coord.SessionID]int{}
		for i, c := range got {
			at[c.id] = i + 1
		}
		if len(at) != len(got) {
			t.Fatalf("twice in %s", identities(got))
		}
		last := 0
		for _, p := range survivors {
			if at[p.ID] <= last {
				t.Fatalf("survivors %v are not in order in %s", survivors, identities(got))
			}
			last = at[p.ID]
		}
		other := rankMembers(before, rapid.Permutation(candidates).Draw(t, "reordered"), limit)
		if identities(got) != identities(other) {
			t.Fatalf("%s, reordered %s", identities(got), identities(other))
		}
	})
}

func TestStaticOrder(t *testing.T) {
	for _, c := range []struct {
		name       string
		candidates []candidate
		n          int
		want       string // empty: not complete
	}{
		{"by hint", candidatesOf("a#2", "b#0", "c#1"), 3, "b c a"},
		{"one is missing", candidatesOf("a#2", "b#0"), 3, ""},
		{"a hint too high", candidatesOf("a#3", "b#0", "c#1"), 3, ""},
		{"no hint", candidatesOf("a", "b#0"), 2, ""},
		{"one hint twice: the first to arrive", candidatesOf("a#1", "b#0", "c#0"), 2, "b a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 2 { // in both orders
				got, ok := staticOrder(c.candidates, c.n)
				if ok != (c.want != "") || ok && identities(got) != c.want {
					t.Errorf("got %q %v, want %q", identities(got), ok, c.want)
				}
				slices.Reverse(c.candidates)
			}
		})
	}
}

func TestCompareNatural(t *testing.T) {
	sorted := []string{
		"", "7", "007a", "node", "node1", "node2", "node10", "node10-2", "node10-11", "node11",
		"node99999999999999999999998", "node99999999999999999999999", "nodes",
	}
	for i, a := range sorted {
		for j, b := range sorted {
			if got, want := CompareNatural(a, b), cmp.Compare(i, j); got != want {
				t.Errorf("compareNatural(%q, %q) = %d, want %d", a, b, got, want)
			}
		}
	}
}

func TestPlacesOf(t *testing.T) {
	offer := &Offer{Addrs: []string{"10.0.0.1"}, Port: 29500, Nonce: "n"}
	r := Record{Round: 3, Restarts: 2, Members: []RecordMember{
		{ID: "a", Role: "trainer", Nproc: 8, Store: offer},
		{ID: "b", Role: "reader", Nproc: 1},
		{ID: "c", Role: "trainer", Nproc: 4},
	}}
	place := func(rank int, a rdzv.Assignment) Place {
		return Place{Rank: rank, Nodes: 3, Restarts: 2, Store: *offer, Assignment: a}
	}
	want := []Place{
		place(0, rdzv.Assignment{GlobalBase: 0, GlobalWorldSize: 13, RoleBase: 0, RoleWorldSize: 12}),
		place(1, rdzv.Assignment{GlobalBase: 8, GlobalWorldSize: 13, RoleBase: 0, RoleWorldSize: 1}),
		place(2, rdzv.Assignment{GlobalBase: 9, GlobalWorldSize: 13, RoleBase: 8, RoleWorldSize: 12}),
	}
	if diff := gocmp.Diff(want, placesOf(&r)); diff != "" {
		t.Error(diff)
	}
}
