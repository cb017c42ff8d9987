package stacks

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Group is a group of workers that do the same.
type Group struct {
	Workers []Worker `json:"workers"` // by rank; at least one
}

// Merge returns the groups of equal workers, the largest first. Of groups of one size, that with the lowest rank comes
// first. Workers are equal if their main threads are, or with allThreads if all their threads are.
func Merge(workers []Worker, allThreads bool) []Group {
	sorted := slices.SortedFunc(slices.Values(workers), func(a, b Worker) int { return cmp.Compare(a.Rank, b.Rank) })
	var groups []Group
	byStack := map[string][]int{} // indexes of groups, by their workers' innermost frame, else their Problem
	for _, w := range sorted {
		key := w.Problem
		if f := w.Frames(); len(f) > 0 {
			key = f[0].File + ":" + strconv.Itoa(f[0].Line)
		}
		same := func(i int) bool { return groups[i].Workers[0].equal(w, allThreads) }
		if at := slices.IndexFunc(byStack[key], same); at >= 0 {
			i := byStack[key][at]
			groups[i].Workers = append(groups[i].Workers, w)
			continue
		}
		byStack[key] = append(byStack[key], len(groups))
		groups = append(groups, Group{[]Worker{w}})
	}
	slices.SortStableFunc(groups, func(a, b Group) int { return cmp.Compare(len(b.Workers), len(a.Workers)) })
	return groups
}

// Ranks lists the group's ranks, such as "0-2, 5".
func (g Group) Ranks() string {
	var ranks []int
	for _, w := range g.Workers {
		ranks = append(ranks, w.Rank)
	}
	return ranges(ranks)
}

// ranges lists numbers, such as "0-2, 5".
func ranges(numbers []int) string {
	sorted := slices.Sorted(slices.Values(numbers))
	var texts []string
	for i := 0; i < len(sorted); i++ {
		first := sorted[i]
		for i+1 < len(sorted) && sorted[i+1] == sorted[i]+1 {
			i++
		}
		text := strconv.Itoa(first)
		if last := sorted[i]; last > first {
			text += "-" + strconv.Itoa(last)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}
