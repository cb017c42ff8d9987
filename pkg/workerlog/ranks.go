package workerlog

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Ranks are the two ranks of one worker in one round.
type Ranks struct {
	Local  int // among the workers of its node
	Global int // among all workers; may change with each round
}

// RankRange selects the workers whose rank lies in First to Last, inclusive. The rank is the local rank, or the
// global rank if Global is set. Which workers a range of global ranks selects is known once a round has assigned
// them.
type RankRange struct {
	Global      bool
	First, Last int
}

// Has reports whether the range selects the worker.
func (r RankRange) Has(w Ranks) bool {
	rank := w.Local
	if r.Global {
		rank = w.Global
	}
	return r.First <= rank && rank <= r.Last
}

// String returns the range as options write it: 3, 0-7, g0, g8-15.
func (r RankRange) String() string {
	kind := ""
	if r.Global {
		kind = "g"
	}
	if r.First == r.Last {
		return kind + strconv.Itoa(r.First)
	}
	return fmt.Sprintf("%s%d-%d", kind, r.First, r.Last)
}

func (r RankRange) kind() string {
	if r.Global {
		return "global"
	}
	return "local"
}

// first returns the first rank that both ranges select, if they select the same kind of rank and overlap.
func (r RankRange) first(o RankRange) (rank int, overlap bool) {
	rank = max(r.First, o.First)
	return rank, r.Global == o.Global && rank <= min(r.Last, o.Last)
}

// compare orders ranges: local ranks first, then ascending.
func (r RankRange) compare(o RankRange) int {
	if r.Global != o.Global {
		if o.Global {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(r.First, o.First), cmp.Compare(r.Last, o.Last))
}

// RankSet selects workers. Nil selects all of them.
type RankSet []RankRange

// ParseRanks parses --local-ranks-filter, a list of ranks such as "0,4-7,g12". The empty string returns nil: no
// filter.
func ParseRanks(s string) (RankSet, error) {
	if s == "" {
		return nil, nil
	}
	var set RankSet
	for item := range strings.SplitSeq(s, ",") {
		ranks, ok := parseRankRange(strings.TrimSpace(item))
		if !ok {
			return nil, fmt.Errorf("%q is not a list of ranks: "+
				"use numbers and ranges with commas between, like 0,4-7, and g0 for a global rank", s)
		}
		set = append(set, ranks)
	}
	slices.SortFunc(set, RankRange.compare)
	return slices.Compact(set), nil
}

// Has reports whether the set selects the worker.
func (s RankSet) Has(w Ranks) bool {
	return s == nil || slices.ContainsFunc(s, func(r RankRange) bool { return r.Has(w) })
}

// String returns the form that ParseRanks parses.
func (s RankSet) String() string {
	items := make([]string, len(s))
	for i, r := range s {
		items[i] = r.String()
	}
	return strings.Join(items, ",")
}

// parseRankRange parses N, N-M, gN or gN-M.
func parseRankRange(s string) (RankRange, bool) {
	s, global := strings.CutPrefix(s, "g")
	low, high, isRange := strings.Cut(s, "-")
	if !isRange {
		high = low
	}
	first, okFirst := parseRank(low)
	last, okLast := parseRank(high)
	return RankRange{global, first, last}, okFirst && okLast && first <= last
}

// parseRank accepts digits only: no sign, no spaces.
func parseRank(s string) (int, bool) {
	if strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	rank, err := strconv.Atoi(s)
	return rank, err == nil
}
