package simulate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// roundOf returns the entries of a round in which agents 10, 11, … have ranks 0, 1, … and nproc workers each.
func roundOf(number int, nproc ...int) []entry {
	world := 0
	for _, n := range nproc {
		world += n
	}
	entries, base := make([]entry, len(nproc)), 0
	for rank, n := range nproc {
		entries[rank] = entry{
			Agent: 10 + rank, Round: number, Rank: rank, Nodes: len(nproc), Nproc: n, Base: base,
			World: world,
		}
		base += n
	}
	return entries
}

func TestChecker(t *testing.T) {
	l := newChecker()
	first := roundOf(0, 2, 1, 8)
	for _, i := range []int{2, 0} {
		if err := l.take(update{Entries: first[i : i+1]}); err != nil {
			t.Fatal(err)
		}
	}
	if n := l.complete; n >= 0 {
		t.Errorf("round %d is complete, and one is missing", n)
	}
	if diff := cmp.Diff([]int{10, 12}, l.members(0)); diff != "" {
		t.Error(diff)
	}
	if err := l.take(update{
		Entries: first[1:2], Stops: []stop{{Agent: 11, Round: 0}, {Agent: 11, Round: 0}},
		Ends: []end{{Agent: 3}},
	}); err != nil {
		t.Fatal(err)
	}
	if n := l.complete; n != 0 {
		t.Errorf("the latest round is %d, want 0", n)
	}
	if l.stops(0) != 1 || l.stops(1) != 0 || !l.hasStopped(11, 0) || l.hasStopped(10, 0) || l.ends != 1 {
		t.Errorf("stops %v, ends %d", l.stopped, l.ends)
	}
	// A round that not all have seen is passed over.
	if err := l.take(update{Entries: append(roundOf(1, 1, 1)[:1], roundOf(2, 4)...)}); err != nil {
		t.Fatal(err)
	}
	if n := l.complete; n != 2 {
		t.Errorf("the latest round is %d, want 2", n)
	}
}

func TestCheckerFindsDefects(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(e []entry)
		want   string
	}{
		{"a rank twice", func(e []entry) { e[2].Rank = 1 }, "round 4: agents 11 and 12 both have rank 1"},
		{"a rank too high", func(e []entry) { e[1].Rank = 3 }, "round 4: agent 11 has rank 3 of 3"},
		{"a rank below 0", func(e []entry) { e[1].Rank = -1 }, "round 4: agent 11 has rank -1 of 3"},
		{"an agent twice", func(e []entry) { e[1].Agent = 10 }, "round 4: 2 agents have its 3 ranks"},
		{"other nodes", func(e []entry) { e[1].Nodes = 2 }, "agent 11 got 2 nodes and 0 restarts, another agent 3 and 0"},
		{"no nodes", func(e []entry) { e[0].Nodes = 0 }, "round 4: agent 10 got 0 nodes"},
		{
			"other restarts", func(e []entry) { e[2].Restarts = 1 },
			"agent 12 got 3 nodes and 1 restarts, another agent 3 and 0",
		},
		{
			"global ranks with a gap", func(e []entry) { e[1].Base++ },
			"the first worker of rank 1 has global rank 3 instead of 2",
		},
		{"another world", func(e []entry) { e[0].World++ }, "round 4: rank 0 got a world size of 12 instead of 11"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			entries := roundOf(4, 2, 1, 8)
			tt.change(entries)
			if err := newChecker().take(update{Entries: entries}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
	if err := newChecker().take(update{Ends: []end{{Agent: 3, Err: "no answer"}}}); err == nil ||
		err.Error() != "agent 3: no answer" {
		t.Errorf("an agent that ended by itself: %v", err)
	}
}
