package status

import (
	"context"
	"testing"

	"github.com/elasticrun/elasticrun/internal/stacks"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
)

// TestProgressOf checks the line about nodes that have replied, have left, or are silent.
func TestProgressOf(t *testing.T) {
	at := func(rank int, state string) stacks.Worker {
		return stacks.Worker{
			Rank: rank, State: state,
			Threads: []stacks.Thread{{Frames: []stacks.Frame{{File: "/srv/train.py", Line: 120, Function: "save"}}}},
		}
	}
	for _, tt := range []struct {
		name   string
		agents []elastic.AgentStatus
		want   string
	}{
		{
			name: "one worker is late",
			agents: []elastic.AgentStatus{
				{Rank: 0, Host: "a", Nproc: 4, Stacks: PackStacks([]stacks.Worker{})},
				{Rank: 1, Host: "b", Nproc: 4, Stacks: PackStacks([]stacks.Worker{at(7, "sleeping")})},
				{Rank: -1, Host: "spare", Nproc: 4},
			},
			want: "ranks 0-6 done; rank 7 is in save, train.py:120",
		},
		{
			name: "a node has left, and one is silent",
			agents: []elastic.AgentStatus{
				{Rank: 0, Host: "a", Nproc: 2, Departed: true},
				{Rank: 1, Host: "b", Nproc: 2},
				{Rank: 2, Host: "c", Nproc: 2, Stacks: PackStacks([]stacks.Worker{at(4, "zombie"), at(5, "running")})},
			},
			want: "ranks 0-1, 4 done; rank 5 is in save, train.py:120; no reply from b",
		},
		{
			name:   "all are done",
			agents: []elastic.AgentStatus{{Rank: 0, Host: "a", Nproc: 4, Stacks: PackStacks(nil)}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := progressOf(elastic.Snapshot{Agents: tt.agents}); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestJobProgressAsks checks that nobody is asked before the first round or without a way to ask.
func TestJobProgressAsks(t *testing.T) {
	o := NewObserver(new(Tracker), Sources{})
	defer o.Close()
	ask := func(context.Context, int, int) *elastic.Snapshot {
		t.Error("it asks")
		return nil
	}
	if got := o.JobProgress(t.Context(), ask) + o.JobProgress(t.Context(), nil); got != "" {
		t.Errorf("%q", got)
	}
}
