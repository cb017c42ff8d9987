package announce

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/goodput"
)

func TestStart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		line Start
		want string
	}{
		{Start{Name: "train.py", Nodes: 1, Workers: 1, LocalWorkers: 1}, "train.py: 1 worker"},
		{Start{Name: "train.py", Nodes: 1, Workers: 4, LocalWorkers: 4, RunID: "a"}, "train.py: 4 workers, run id a"},
		{
			Start{Name: "train.py", Nodes: 1, Workers: 4, LocalWorkers: 4, OneThread: true},
			"train.py: 4 workers, OMP_NUM_THREADS=1",
		},
		{
			Start{Name: "train.py", Nodes: 2, Workers: 8, LocalWorkers: 4, RunID: "job7"},
			"train.py: 2 nodes, 8 workers (4 on this node), run id job7",
		},
	} {
		if got := tt.line.String(); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.line, got, tt.want)
		}
	}
}

func TestSuccess(t *testing.T) {
	t.Parallel()
	for want, line := range map[string]Success{
		"train.py succeeded in 3m12s, 0 restarts": {Name: "train.py", Took: 192 * time.Second},
		"train.py succeeded in 28ms, 1 restart":   {Name: "train.py", Took: 28 * time.Millisecond, Restarts: 1},
		"train.py succeeded in 9.9s, 0 restarts": {
			Name: "train.py", Took: 9900 * time.Millisecond, Used: &goodput.Goodput{Running: 9, Idle: 1},
		},
		"train.py succeeded in 3m12s, 0 restarts, 90.0 % running": {
			Name: "train.py", Took: 192 * time.Second, Used: &goodput.Goodput{Running: 9, Idle: 1},
		},
		"train.py succeeded in 28ms, 1 restart, 90.0 % training": {
			Name: "train.py", Took: 28 * time.Millisecond, Restarts: 1,
			Used: &goodput.Goodput{Running: 9, Lost: 1, Steps: true},
		},
		"train.py succeeded on this node in 3m12s, 0 restarts; how the other nodes end is not known": {
			Name: "train.py", Took: 192 * time.Second, OthersUnknown: true,
		},
	} {
		if got := line.String(); got != want {
			t.Errorf("%+v: %q, want %q", line, got, want)
		}
	}
}

// Only the node that has rank 0 speaks: at the start in its first round, and at the end of a job that succeeds.
func TestAnnouncer(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 22, 13, 0, 0, 0, time.UTC)
	started := events.Event{Kind: events.KindLauncherStarted, Time: begin}
	round := func(rank int) events.Event {
		return events.Event{Kind: events.KindRound, NodeRank: new(rank), Nodes: 2, WorldSize: 8}
	}
	end := func(code int, reason string) events.Event {
		return events.Event{
			Kind: events.KindEnd, Time: begin.Add(192 * time.Second), ExitCode: new(code), Reason: reason, Restarts: new(1),
		}
	}
	used := func(e events.Event) events.Event {
		e.Used = &goodput.Goodput{Running: 9, Idle: 1}
		return e
	}
	first := "train.py: 2 nodes, 8 workers (4 on this node), run id job7"
	last := "train.py succeeded in 3m12s, 1 restart"
	for _, tt := range []struct {
		name   string
		events []events.Event
		want   []string
	}{
		{"success", []events.Event{started, round(0), end(0, "success")}, []string{first, last}},
		{"restart", []events.Event{started, round(0), round(0), end(0, "success")}, []string{first, last}},
		{"failure", []events.Event{started, round(0), end(3, "worker_failed")}, []string{first}},
		{
			"failure with goodput",
			[]events.Event{started, round(0), used(end(3, "worker_failed"))},
			[]string{first, "goodput of train.py: 90.0 % running, 10.0 % idle"},
		},
		{"failure that --exit-code-map makes 0", []events.Event{started, round(0), end(0, "worker_failed")}, []string{first}},
		{"other node", []events.Event{started, round(1), end(0, "success")}, nil},
		{"other node that gets rank 0", []events.Event{started, round(1), round(0), end(0, "success")}, []string{last}},
		{"no round", []events.Event{started, end(0, "nothing_started")}, nil},
		{"refused", []events.Event{started, end(2, "usage")}, nil},
	} {
		var got []string
		a := New(Start{Name: "train.py", LocalWorkers: 4, RunID: "job7"}, func(line string) { got = append(got, line) })
		for _, e := range tt.events {
			a.Emit(e)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
