package events

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMetrics(t *testing.T) {
	var m Metrics
	group := Group{Role: "default", Budget: 3, Restarts: 1}
	for _, e := range []Event{
		{Kind: KindStep, Step: "good", Duration: 2 * time.Millisecond},
		{Kind: KindStep, Step: "good", Duration: 3 * time.Millisecond},
		{Kind: KindStep, Step: "bad", RawError: "boom"},
		{Kind: KindState, State: "HEALTHY"},
		{Kind: KindWaiting},
		{Kind: KindRun, State: "STOPPED", RawError: "lost"},
	} {
		e.Group = group
		m.Emit(e)
	}
	if got := m.Get("good.duration.ms"); got != (Series{Count: 2, Sum: 5, Last: 3}) {
		t.Errorf("good.duration.ms = %+v", got)
	}
	if got := m.Get("missing"); got != (Series{}) {
		t.Errorf("missing = %+v", got)
	}
	want := []string{
		"bad.duration.ms", "bad.failure", "good.duration.ms", "good.success", "run.duration.ms", "run.failure",
		"workers.default.healthy", "workers.default.remaining_restarts",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(m.All()))); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	m.Emit(Event{Kind: KindRun, State: "SUCCEEDED", Group: group})
	for name, want := range map[string]float64{
		"run_total": 1, "run_success_with_retries": 1, "run_success_no_retries": 0, "run_failed_with_retries": 0,
		"flakiness": 25,
	} {
		if got := m.Get("workers.default." + name); got.Last != want {
			t.Errorf("%s = %+v, want %v", name, got, want)
		}
	}
}

// Each round says how flaky the run is so far, because the run's end is too late for most readers.
func TestRoundMetrics(t *testing.T) {
	var m Metrics
	for restarts := range 3 {
		m.Emit(Event{Kind: KindRound, Group: Group{Role: "r", Budget: 3, Restarts: restarts}})
	}
	for name, want := range map[string]Series{
		"workers.r.flakiness":          {Count: 3, Sum: 0 + 25 + 50, Last: 50},
		"workers.r.remaining_restarts": {Count: 3, Sum: 3 + 2 + 1, Last: 1},
		"assign_worker_ranks.success":  {Count: 3, Sum: 3, Last: 1},
	} {
		if got := m.Get(name); got != want {
			t.Errorf("%s = %+v, want %+v", name, got, want)
		}
	}
}

func TestFlakiness(t *testing.T) {
	tests := []struct {
		failed         bool
		remaining, max int
		want           int
	}{
		{false, 3, 3, 0}, {false, 2, 3, 25}, {false, 0, 3, 75}, {false, 0, 0, 0}, {true, 3, 3, 100},
	}
	for _, tt := range tests {
		if got := flakiness(tt.failed, tt.remaining, tt.max); got != tt.want {
			t.Errorf("flakiness(%v, %d, %d) = %d, want %d", tt.failed, tt.remaining, tt.max, got, tt.want)
		}
	}
}
