package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Where the other workers are is shown 30 s after the first is done, and then after 1, 2, 4, 5 and 5 minutes.
func TestProgress(t *testing.T) {
	here := []string{"30s: here", "1m30s: here", "3m30s: here", "7m30s: here", "12m30s: here", "17m30s: here"}
	for _, tt := range []struct {
		name    string
		nodes   int
		first   bool          // one of two workers ends at the start
		second  time.Duration // when the other one ends
		barrier time.Duration // how long the other nodes take
		want    []string
	}{
		{name: "one worker is late", nodes: 1, first: true, second: 18 * time.Minute, want: here},
		{name: "one worker is a bit late", nodes: 1, first: true, second: 29 * time.Second},
		{name: "both take long", nodes: 1, second: time.Hour},
		{
			name: "another node is late", nodes: 2, first: true, second: 31 * time.Second, barrier: 91 * time.Second,
			want: []string{"30s: here", "1m1s: elsewhere", "2m1s: elsewhere"},
		},
		{name: "there is no other node", nodes: 1, first: true, second: time.Second, barrier: time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newHarness(t, WorkerSpec{}, runsOn)
				stacks := &fakeStacks{began: time.Now(), takes: time.Hour} // until its context ends
				b.agent.opts.Stacks = stacks
				b.rdzv.nodes = tt.nodes
				b.rdzv.barrier = func(context.Context, time.Duration) (*rdzv.Stop, error) {
					<-time.After(tt.barrier)
					return nil, nil
				}
				wait := b.start(t.Context())
				if tt.first {
					b.group().exit(procs.Exit{LocalRank: 0})
				}
				<-time.After(tt.second)
				if !tt.first {
					b.group().exit(procs.Exit{LocalRank: 0})
				}
				b.group().exit(procs.Exit{LocalRank: 1})
				if r, err := wait(); err != nil || r.State != Succeeded {
					t.Errorf("%+v, %v", r, err)
				}
				if took, want := time.Since(stacks.began), tt.second+tt.barrier; took != want {
					t.Errorf("it took %v, want %v", took, want)
				}
				if diff := cmp.Diff(tt.want, stacks.shown); diff != "" {
					t.Errorf("shown (-want +got):\n%s", diff)
				}
			})
		})
	}
}
