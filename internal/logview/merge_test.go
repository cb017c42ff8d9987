package logview

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// list is a source of given lines, followed by err.
type list struct {
	lines []line
	err   error
}

func (l *list) next() (line, bool, error) {
	if len(l.lines) == 0 {
		return line{}, false, l.err
	}
	first := l.lines[0]
	l.lines = l.lines[1:]
	return first, true, nil
}

// Every line is emitted once. The lines of one source keep their order, all are in the order of time, and lines of
// the same time are in the order of the sources.
func TestMerge(t *testing.T) {
	type tagged struct {
		at     time.Time
		source int
		number int
	}
	rapid.Check(t, func(rt *rapid.T) {
		var sources []*list
		var want []tagged
		for i := range rapid.IntRange(0, 5).Draw(rt, "sources") {
			s := &list{}
			times := rapid.SliceOf(rapid.IntRange(0, 5)).Draw(rt, "times")
			slices.Sort(times)
			for n, at := range times {
				l := tagged{time.Unix(int64(at), 0), i, n}
				want = append(want, l)
				s.lines = append(s.lines, line{l.at, fmt.Appendf(nil, "%d %d", i, n)})
			}
			sources = append(sources, s)
		}
		slices.SortFunc(want, func(a, b tagged) int {
			return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.source, b.source), cmp.Compare(a.number, b.number))
		})
		var got []tagged
		err := merge(sources, func(s *list, l line) error {
			out := tagged{at: l.at}
			_, err := fmt.Sscan(string(l.text), &out.source, &out.number)
			if sources[out.source] != s {
				rt.Fatal("a line of another source")
			}
			got = append(got, out)
			return err
		})
		if err != nil || !slices.Equal(got, want) {
			rt.Fatalf("%v: got %v\nwant %v", err, got, want)
		}
	})
}

func TestMergeEnds(t *testing.T) {
	broken := errors.New("broken")
	one := func() *list { return &list{lines: []line{{text: []byte("x")}}} }
	if err := merge([]*list{one(), {err: broken}}, func(*list, line) error { return nil }); !errors.Is(err, broken) {
		t.Error("a source that fails:", err)
	}
	late := one()
	late.err = broken
	if err := merge([]*list{late, one()}, func(*list, line) error { return nil }); !errors.Is(err, broken) {
		t.Error("a source that fails later:", err)
	}
	if err := merge([]*list{one()}, func(*list, line) error { return broken }); !errors.Is(err, broken) {
		t.Error("a reader that went away:", err)
	}
}
