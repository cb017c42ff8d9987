package procs

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Std is a set of a worker's standard output streams, with torchrun's numbers.
type Std uint8

// The sets that --redirects and --tee can name.
const (
	StdNone Std = 0
	Stdout  Std = 1
	Stderr  Std = 2
	StdAll  Std = Stdout | Stderr
)

// Has reports whether all streams of t are in s.
func (s Std) Has(t Std) bool { return s&t == t }

// String names the set for messages.
func (s Std) String() string {
	switch s {
	case StdNone:
		return "none"
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	case StdAll:
		return "stdout and stderr"
	}
	return fmt.Sprintf("Std(%d)", uint8(s))
}

// StdSpec is a value of --redirects or --tee: a set of streams for each local
// rank. The zero value selects nothing.
type StdSpec struct {
	// Default is for every local rank, unless ByRank is set.
	Default Std
	// ByRank holds the sets of single local ranks; those missing have StdNone.
	ByRank map[int]Std
}

// ParseStdSpec reads torchrun's syntax: one number for all workers ("3"), or a
// map from local rank to number ("0:3,1:2"). 0 is none, 1 stdout, 2 stderr, 3
// both. Local ranks of more than one digit are accepted, which torchrun does not.
func ParseStdSpec(s string) (StdSpec, error) {
	if std, ok := parseStd(s); ok {
		return StdSpec{Default: std}, nil
	}
	byRank := map[int]Std{}
	for item := range strings.SplitSeq(s, ",") {
		left, right, _ := strings.Cut(item, ":")
		rank, okRank := parseRank(left)
		std, okStd := parseStd(right)
		if !okRank || !okStd {
			return StdSpec{}, fmt.Errorf("%q selects no streams: use 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or a map from local rank to these like 0:3,1:2", s)
		}
		if _, twice := byRank[rank]; twice {
			return StdSpec{}, fmt.Errorf("%q names local rank %d twice: name each local rank once", s, rank)
		}
		byRank[rank] = std
	}
	return StdSpec{ByRank: byRank}, nil
}

// Of returns the streams selected for one local rank.
func (s StdSpec) Of(localRank int) Std {
	if s.ByRank != nil {
		return s.ByRank[localRank]
	}
	return s.Default
}

// String returns the form that ParseStdSpec reads.
func (s StdSpec) String() string {
	if len(s.ByRank) == 0 {
		return strconv.Itoa(int(s.Of(0)))
	}
	items := make([]string, 0, len(s.ByRank))
	for _, rank := range slices.Sorted(maps.Keys(s.ByRank)) {
		items = append(items, fmt.Sprintf("%d:%d", rank, s.ByRank[rank]))
	}
	return strings.Join(items, ",")
}

// ParseRanks reads --local-ranks-filter, a list like "0,2", into ascending
// local ranks. The empty string is nil: no filter.
func ParseRanks(s string) ([]int, error) {
	if s == "" {
		return nil, nil
	}
	var ranks []int
	for item := range strings.SplitSeq(s, ",") {
		rank, ok := parseRank(strings.TrimSpace(item))
		if !ok {
			return nil, fmt.Errorf("%q is not a list of local ranks: use numbers with commas between, like 0,2", s)
		}
		ranks = append(ranks, rank)
	}
	slices.Sort(ranks)
	return slices.Compact(ranks), nil
}

// ParseFilters reads the substrings of --duplicate-stdout-filters: they are
// separated by commas, and ",," stands for a comma within one. Empty substrings
// are dropped, since they would match every line.
func ParseFilters(s string) []string {
	var (
		filters []string
		one     strings.Builder
	)
	add := func() {
		if one.Len() > 0 {
			filters = append(filters, one.String())
		}
		one.Reset()
	}
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != ',':
			one.WriteByte(s[i])
		case i+1 < len(s) && s[i+1] == ',':
			one.WriteByte(',')
			i++
		default:
			add()
		}
	}
	add()
	return filters
}

func parseStd(s string) (Std, bool) {
	if len(s) == 1 && s[0] >= '0' && s[0] <= '3' {
		return Std(s[0] - '0'), true
	}
	return StdNone, false
}

// parseRank accepts digits only: no sign, no spaces.
func parseRank(s string) (int, bool) {
	if strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	rank, err := strconv.Atoi(s)
	return rank, err == nil
}
