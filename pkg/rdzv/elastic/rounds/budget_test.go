package rounds

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBudgetForgivesOldFailures(t *testing.T) {
	var b budget
	for at := range 4 {
		b.charge(time.Duration(at) * time.Minute)
	}
	for _, c := range []struct {
		now, window time.Duration
		want        int
	}{
		{3 * time.Minute, 0, 4},
		{1000 * time.Hour, 0, 4},
		{3 * time.Minute, 10 * time.Minute, 4},
		{3 * time.Minute, 3 * time.Minute, 3}, // one that is as old as the window is forgiven
		{4 * time.Minute, 3 * time.Minute, 2},
		{10 * time.Minute, 3 * time.Minute, 0},
	} {
		if got := b.charged(c.now, c.window); got != c.want {
			t.Errorf("charged at %v in %v: %d, want %d", c.now, c.window, got, c.want)
		}
	}
}

func TestBudgetQuarantinesAfterLosses(t *testing.T) {
	const minute = time.Minute
	for _, c := range []struct {
		name   string
		losses []time.Duration
		limit  int
		until  time.Duration // 0: not quarantined
	}{
		{"one loss", []time.Duration{0}, 3, 0},
		{"two", []time.Duration{0, minute}, 3, 0},
		{"three", []time.Duration{0, minute, 2 * minute}, 3, 12 * minute},
		{"three, the first long ago", []time.Duration{0, 9 * minute, 10 * minute}, 3, 0},
		{"a fourth prolongs it", []time.Duration{0, minute, 2 * minute, 5 * minute}, 3, 15 * minute},
		{"no limit", []time.Duration{0, 1, 2, 3, 4, 5}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b budget
			j := &Job{MaxNodeLosses: c.limit}
			now := time.Duration(0)
			for _, now = range c.losses {
				b.recordLoss(now, "a", j)
				b.recordLoss(now, "b", &Job{})
			}
			if b.isQuarantined("b") || b.isQuarantined("a") != (c.until > 0) {
				t.Fatalf("quarantined: %v", b.quarantinedUntil)
			}
			if next := b.nextQuarantineEnd(); next != (OptionalTime{c.until, c.until > 0}) {
				t.Fatalf("next release %v, want %v", next, c.until)
			}
			if c.until == 0 {
				return
			}
			if free := b.endQuarantines(c.until - 1); free != nil {
				t.Fatalf("%v is released too early", free)
			}
			if free := b.endQuarantines(c.until); !slices.Equal(free, []string{"a"}) || b.isQuarantined("a") {
				t.Fatalf("released: %v", free)
			}
		})
	}
}

// TestBudgetSurvivesALeader checks that charges and losses in a record mean the same to the next leader, whose clock
// has another origin.
func TestBudgetSurvivesALeader(t *testing.T) {
	const minute, origin = time.Minute, 1000 * time.Hour
	j := &Job{MaxNodeLosses: 3, RestartWindow: 20 * minute}
	var b budget
	for _, at := range []time.Duration{0, 5 * minute, 25 * minute} {
		b.charge(at)
	}
	for _, at := range []time.Duration{10 * minute, 24 * minute, 25 * minute, 26 * minute} {
		b.recordLoss(at, "a", j)
	}
	b.recordLoss(29*minute, "b", j)
	var r Record
	b.saveTo(&r, 30*minute, j)
	want := Record{
		Charges: []time.Duration{5 * minute},
		Losses:  map[string][]time.Duration{"a": {6 * minute, 5 * minute, 4 * minute}, "b": {minute}},
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Fatal(diff)
	}
	next := restoreBudget(r, j, origin)
	if !next.isQuarantined("a") || next.isQuarantined("b") || next.charged(origin, j.RestartWindow) != 1 {
		t.Fatalf("%+v", next)
	}
	next.shiftBack(4 * minute) // the record was 4 minutes old
	if free := next.endQuarantines(origin + 2*minute); !slices.Equal(free, []string{"a"}) {
		t.Errorf("free after 6 of 6 minutes: %v, %v", free, next.quarantinedUntil)
	}
	if got := next.charged(origin+11*minute, j.RestartWindow); got != 0 {
		t.Errorf("%d charges are left, the last is %v old", got, 20*minute)
	}
}
