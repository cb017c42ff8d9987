package stacks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/internal/printable"
)

// maxPlaces bounds the places that Progress names.
const maxPlaces = 3

// Progress says in one line which ranks have finished, where the others are, and which hosts are silent: their agents
// have not replied. It returns "" if no worker runs and no host is silent.
func Progress(done []int, running []Worker, silent []string) string {
	byPlace := map[string][]int{}
	for _, w := range running {
		place := w.Where()
		byPlace[place] = append(byPlace[place], w.Rank)
	}
	if len(byPlace)+len(silent) == 0 {
		return ""
	}
	type group struct {
		place string
		ranks []int
	}
	var groups []group
	for place, ranks := range byPlace {
		groups = append(groups, group{place, slices.Sorted(slices.Values(ranks))})
	}
	// The small groups come first: the others usually wait for them.
	slices.SortFunc(groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(len(a.ranks), len(b.ranks)), cmp.Compare(a.ranks[0], b.ranks[0]))
	})
	var parts []string
	if len(done) > 0 {
		parts = append(parts, Ranks(done)+" done")
	}
	for _, g := range groups[:min(len(groups), maxPlaces)] {
		verb := "is"
		if len(g.ranks) > 1 {
			verb = "are"
		}
		parts = append(parts, fmt.Sprintf("%s %s %s", Ranks(g.ranks), verb, cmp.Or(g.place, "running")))
	}
	if left := groups[min(len(groups), maxPlaces):]; len(left) > 0 {
		var ranks []int
		for _, g := range left {
			ranks = append(ranks, g.ranks...)
		}
		parts = append(parts, Ranks(ranks)+" elsewhere")
	}
	if len(silent) > 0 {
		parts = append(parts, "no reply from "+printable.Line(strings.Join(silent, ", ")))
	}
	return strings.Join(parts, "; ")
}
