package workerlog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// StreamSet is a set of a worker's standard output streams, with torchrun's numbers.
type StreamSet uint8

// The sets that --redirects and --tee can select.
const (
	NoStreams  StreamSet = 0
	Stdout     StreamSet = 1
	Stderr     StreamSet = 2
	AllStreams StreamSet = Stdout | Stderr
)

// Has reports whether all streams of t are in s.
func (s StreamSet) Has(t StreamSet) bool { return s&t == t }

// String names the set in messages.
func (s StreamSet) String() string {
	switch s {
	case NoStreams:
		return "none"
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	case AllStreams:
		return "stdout and stderr"
	}
	return fmt.Sprintf("StreamSet(%d)", uint8(s))
}

// StreamSpec is a value of --redirects or --tee: a set of streams for each worker. The zero value selects nothing.
type StreamSpec struct {
	// Default applies to every worker, unless ByRank is set.
	Default StreamSet
	// ByRank holds the sets of some workers, in ascending order, with those selected by local rank first. All other
	// workers have NoStreams.
	ByRank []StreamRange
}

// StreamRange is the set of streams of a range of workers.
type StreamRange struct {
	RankRange
	Streams StreamSet
}

// ParseStreamSpec parses one number for all workers ("3"), or a map from ranks to numbers ("0:3,1:2"). 0 is none, 1
// stdout, 2 stderr, 3 both. That is torchrun's syntax. Beyond it, ranks may have several digits, be ranges ("0-7:3"),
// and be global ("g12-15:1").
func ParseStreamSpec(s string) (StreamSpec, error) {
	if std, ok := parseStreams(s); ok {
		return StreamSpec{Default: std}, nil
	}
	var byRank []StreamRange
	for item := range strings.SplitSeq(s, ",") {
		left, right, _ := strings.Cut(item, ":")
		ranks, okRanks := parseRankRange(left)
		std, okStreams := parseStreams(right)
		if !okRanks || !okStreams {
			return StreamSpec{}, fmt.Errorf("%q selects no streams: use 0 (none), 1 (stdout), 2 (stderr) or 3 (both), "+
				"or a map from ranks to these like 0:3,1:2 or 0-7:1,g0:3", s)
		}
		for _, r := range byRank {
			if twice, overlap := r.first(ranks); overlap {
				return StreamSpec{}, fmt.Errorf("%q names %s rank %d twice: name each rank once", s, ranks.kind(), twice)
			}
		}
		byRank = append(byRank, StreamRange{ranks, std})
	}
	slices.SortFunc(byRank, func(a, b StreamRange) int { return a.compare(b.RankRange) })
	return StreamSpec{ByRank: byRank}, nil
}

// Of returns the streams selected for one worker. A worker that is selected both by its local and by its global rank
// gets the streams of both.
func (s StreamSpec) Of(w Ranks) StreamSet {
	if s.ByRank == nil {
		return s.Default
	}
	var std StreamSet
	for _, r := range s.ByRank {
		if r.Has(w) {
			std |= r.Streams
		}
	}
	return std
}

// Any reports whether streams of any worker are selected.
func (s StreamSpec) Any() bool {
	return s.Default != NoStreams ||
		slices.ContainsFunc(s.ByRank, func(r StreamRange) bool { return r.Streams != NoStreams })
}

// String returns the form that ParseStreamSpec parses.
func (s StreamSpec) String() string {
	if len(s.ByRank) == 0 {
		return strconv.Itoa(int(s.Default))
	}
	items := make([]string, 0, len(s.ByRank))
	for _, r := range s.ByRank {
		items = append(items, fmt.Sprintf("%s:%d", r.RankRange, r.Streams))
	}
	return strings.Join(items, ",")
}

// ParseFilters parses the substrings of --duplicate-stdout-filters. They are separated by commas, and ",," stands for
// a comma within a substring. Empty substrings are dropped, because they would match every line.
func ParseFilters(s string) []string {
	var filters []string
	var item []byte
	for i := 0; i <= len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], ",,"):
			item = append(item, ',')
			i++
		case i < len(s) && s[i] != ',':
			item = append(item, s[i])
		default:
			if len(item) > 0 {
				filters = append(filters, string(item))
			}
			item = nil
		}
	}
	return filters
}

func parseStreams(s string) (StreamSet, bool) {
	if len(s) == 1 && s[0] >= '0' && s[0] <= '3' {
		return StreamSet(s[0] - '0'), true
	}
	return NoStreams, false
}
