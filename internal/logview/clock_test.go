package logview

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// timeline has each mark, between marks of other streams and lines that cannot be parsed.
func timeline(marks ...workerlog.Mark) *strings.Reader {
	var b strings.Builder
	b.WriteString(workerlog.TimelineHead{RunID: "x"}.String() + "\n")
	for _, m := range marks {
		m.LocalRank, m.Stream = 3, workerlog.Stderr
		b.WriteString("1 33 2 99\n1 3 1 99\nno mark at all 3 2 \n" + strings.Repeat(" 3 2 ", 9000) + "\n" + m.String() + "\n")
	}
	b.WriteString("5 3 2") // a full disk
	return strings.NewReader(b.String())
}

func at(seconds float64) time.Time { return time.UnixMicro(int64(seconds * 1e6)) }

func TestClock(t *testing.T) {
	marks := []workerlog.Mark{
		{At: at(10), Bytes: 0},
		{At: at(11), Bytes: 100},
		{At: at(60), Bytes: 120, Idle: 48 * time.Second}, // so the 20 were written from 11 to 12
		{At: at(61), Bytes: 120, Piece: 1},
		{At: at(62), Bytes: 220},
	}
	c := newClock(timeline(marks...), 3, workerlog.Stderr)
	got := map[int64]float64{}
	for _, offset := range []int64{0, 50, 99, 100, 110, 119, 120, 170, 220, 230, 240} {
		when, err := c.when(offset, point{at(70), 240})
		if err != nil {
			t.Fatal(err)
		}
		got[offset] = float64(when.UnixMicro()) / 1e6
	}
	want := map[int64]float64{
		0:   10,
		50:  10.5,
		99:  10.99,
		100: 11,
		110: 11.5,
		119: 11.95,
		120: 61,
		170: 61.5,
		220: 62,
		230: 66,
		240: 70,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("seconds by offset (-want +got):\n%s", diff)
	}
}

func TestClockSkips(t *testing.T) {
	marks := []workerlog.Mark{
		{At: at(1)},
		{At: at(2), Bytes: 10, Piece: 1},
		{At: at(3), Bytes: 20, Piece: 2},
		{At: at(4), Bytes: 30},
	}
	for piece, want := range map[int]struct {
		offset int64
		at     time.Time
	}{1: {10, at(2)}, 2: {20, at(3)}, 3: {20, at(4)}} {
		c := newClock(timeline(marks...), 3, workerlog.Stderr)
		offset, err := c.skip(piece)
		if err != nil || offset != want.offset {
			t.Errorf("piece %d ends at %d (%v), want %d", piece, offset, err, want.offset)
		}
		if when, err := c.when(offset, point{at(9), 40}); err != nil || !when.Equal(want.at) {
			t.Errorf("piece %d ends at %v (%v), want %v", piece, when, err, want.at)
		}
	}
	if last, err := newClock(timeline(marks...), 3, workerlog.Stderr).lastPiece(); last != 2 || err != nil {
		t.Errorf("last piece %d, %v", last, err)
	}
}

func TestClockWithoutTimeline(t *testing.T) {
	if when, err := newClock(nil, 0, workerlog.Stdout).when(7, point{at(9), 40}); err != nil || !when.IsZero() {
		t.Errorf("%v, %v: want no time", when, err)
	}
}

// Times never decrease, whatever the timeline says, and lie between its first mark and the end.
func TestClockNeverGoesBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		marks := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) workerlog.Mark {
			return workerlog.Mark{
				At: at(float64(rapid.IntRange(1, 1000).Draw(rt, "at"))), Bytes: rapid.Int64Range(0, 1000).Draw(rt, "bytes"),
				Idle: time.Duration(
					rapid.IntRange(0, 3).Draw(rt, "quiet"),
				) * time.Second, Piece: rapid.IntRange(0, 2).Draw(rt, "piece"),
			}
		}), 0, 20).Draw(rt, "marks")
		offsets := rapid.SliceOf(rapid.Int64Range(0, 1200)).Draw(rt, "offsets")
		slices.Sort(offsets)
		c := newClock(timeline(marks...), 3, workerlog.Stderr)
		var last time.Time
		for _, offset := range offsets {
			when, err := c.when(offset, point{at(1001), 1200})
			if err != nil || when.Before(last) {
				rt.Fatalf("byte %d was written at %v, after one of %v (%v)", offset, when, last, err)
			}
			last = when
		}
	})
}

// A reader that is ahead of the timeline knows when output continued.
func TestClockOfWhatWasSeen(t *testing.T) {
	c := newClock(strings.NewReader("10000000 3 2 0\n"), 3, workerlog.Stderr)
	var got []int64
	for _, step := range []struct {
		offset int64
		end    point
	}{{0, point{at(10), 10}}, {10, point{at(20), 30}}, {25, point{at(20), 30}}} {
		if step.offset == 10 {
			c.saw(point{at(20), 10})
		}
		when, err := c.when(step.offset, step.end)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, when.Unix())
	}
	if diff := cmp.Diff([]int64{10, 20, 20}, got); diff != "" {
		t.Errorf("seconds (-want +got):\n%s", diff)
	}
}
