package scenario

import (
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// goesOn waits until the first round, of all agents, has three voters. It then ends the job and checks its worlds: a
// second store would have made a round of its own.
func (j *job) goesOn(worlds ...int) {
	j.t.Helper()
	j.awaitRound(-1, worlds[0])
	for _, a := range j.agents {
		a.await(survivesLoss)
	}
	j.finish()
	j.end(0, nil, expected{worlds: worlds})
}

// TestEndpointsAreOneMachine gives a job endpoints of which two are names of one machine. Its agent says so and names
// both. The job starts and has one store.
func TestEndpointsAreOneMachine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		endpoints string
		host      int    // the machine with two names
		warning   string // what its agent says
	}{
		{"node0,alias0,node1", 0, "the endpoints node0:29400 and alias0:29400 are one machine"},
		{"node0:29400,alias0:29401,node1", 0, "the endpoints node0:29400 and alias0:29401 are one machine"},
		{"node0,node1,alias1", 1, "the endpoints node1:29400 and alias1:29400 are one machine"},
	} {
		t.Run(tt.endpoints, func(t *testing.T) {
			t.Parallel()
			j := newTogether(t, "4")
			j.lab.AddNames("10.75.0.1 alias0", "10.75.0.2 alias1")
			j.flags = append(j.flags, "--rdzv-endpoint="+tt.endpoints)
			j.startAll(j.nodes()...)
			j.goesOn(4)
			for i, a := range j.agents {
				want := 0
				if i == tt.host {
					want = 1
				}
				if got := strings.Count(a.text(), "are one machine"); got != want {
					t.Errorf("%s says %d times that endpoints are one machine, want %d", a.name, got, want)
				}
				if i == tt.host && !strings.Contains(a.text(), tt.warning) {
					t.Errorf("%s does not say: %s", a.name, tt.warning)
				}
			}
		})
	}
}

// TestEndpointsDiffer gives the agents of a job lists of endpoints that overlap in part, or have another order. They
// become one job.
func TestEndpointsDiffer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		lists string
		long  bool // two agents wait for each other at first, for FoundDelay of package founding or twice that
	}{
		{lists: "node0,node1 node1,node2 node0,node2"},
		{lists: "node0,node1,node2 node1,node2,node0 node2,node0,node1"},
		{lists: "node0,node2 node1,node2 node2"}, // node2 alone hears of the stores of node0 and node1
		{lists: "node1,node0 node0,node1 node0,node1", long: true},
		{lists: "node1,node2,node0 node2,node0,node1 node0,node1,node2", long: true},
	} {
		t.Run(tt.lists, func(t *testing.T) {
			t.Parallel()
			if tt.long && !testenv.Whole(t) {
				t.Skip("make soak runs it; TestEndpointsInAnotherOrder of package elastic is short")
			}
			j := newTogether(t, "3")
			j.flags = append(j.flags, strings.Replace(lastCall(8*time.Second), "join_timeout=10", "join_timeout=60", 1))
			for i, list := range strings.Fields(tt.lists) {
				j.start(j.lab.Hosts[i], "--rdzv-endpoint="+list)
			}
			j.goesOn(3)
			for _, a := range j.agents {
				if text := a.text(); strings.Contains(text, "another store of this run is at other nodes") {
					t.Errorf("%s has found a second store", a.name)
				}
			}
		})
	}
}
