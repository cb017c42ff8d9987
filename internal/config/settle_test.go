package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSettle(t *testing.T) {
	const one, two = 1, 2
	tests := []struct {
		name string
		in   rendezvousFlags
		want settled
	}{
		{"nothing given", rendezvousFlags{MaxNodes: one, MasterPort: -1}, settled{"c10d", "localhost:0", "fresh", "127.0.0.1", 0}},
		{"own run id", rendezvousFlags{MaxNodes: one, MasterPort: -1, RunID: "job"}, settled{"c10d", "localhost:0", "job", "127.0.0.1", 0}},
		{"the run id none", rendezvousFlags{MaxNodes: one, MasterPort: -1, RunID: "none"}, settled{"c10d", "localhost:0", "none", "127.0.0.1", 0}},
		{"master port", rendezvousFlags{MaxNodes: one, MasterPort: 29511}, settled{"c10d", "localhost:0", "fresh", "127.0.0.1", 29511}},
		{"master address", rendezvousFlags{MaxNodes: one, MasterPort: -1, MasterAddr: "n1"}, settled{"c10d", "localhost:0", "fresh", "n1", 0}},
		{"master address and port", rendezvousFlags{MaxNodes: one, MasterPort: 1, MasterAddr: "::1"}, settled{"c10d", "localhost:0", "fresh", "::1", 1}},
		{"master port 0", rendezvousFlags{MaxNodes: one, MasterPort: 0}, settled{"c10d", "localhost:0", "fresh", "127.0.0.1", 0}},
		{"node rank", rendezvousFlags{MaxNodes: one, MasterPort: -1, NodeRankGiven: true}, settled{"c10d", "localhost:0", "fresh", "127.0.0.1", 0}},
		{"endpoint", rendezvousFlags{MaxNodes: one, MasterPort: -1, Endpoint: "h:1"}, settled{"c10d", "h:1", "fresh", "127.0.0.1", 0}},
		{"local address", rendezvousFlags{MaxNodes: one, MasterPort: -1, LocalAddr: "10.0.0.1"}, settled{"c10d", "localhost:0", "fresh", "10.0.0.1", 0}},
		{"local and master address", rendezvousFlags{MaxNodes: one, MasterPort: -1, LocalAddr: "10.0.0.1", MasterAddr: "m"}, settled{"c10d", "localhost:0", "fresh", "m", 0}},

		{"standalone", rendezvousFlags{Standalone: true, MaxNodes: one, MasterPort: -1}, settled{"c10d", "localhost:0", "fresh", "127.0.0.1", 0}},
		{
			"standalone beats all",
			rendezvousFlags{Standalone: true, MaxNodes: one, Backend: "static", Endpoint: "h:1", RunID: "job", MasterAddr: "m", MasterPort: 2},
			settled{"c10d", "localhost:0", "fresh", "127.0.0.1", 0},
		},

		{"c10d", rendezvousFlags{MaxNodes: one, Backend: "c10d", MasterPort: -1}, settled{"c10d", "localhost:0", "fresh", "127.0.0.1", 0}},
		{"c10d, endpoint", rendezvousFlags{MaxNodes: one, Backend: "c10d", Endpoint: "localhost", MasterPort: -1}, settled{"c10d", "localhost", "fresh", "127.0.0.1", 0}},
		{"c10d ignores the master port", rendezvousFlags{MaxNodes: one, Backend: "c10d", MasterPort: 2, MasterAddr: "m"}, settled{"c10d", "localhost:0", "fresh", "127.0.0.1", 0}},
		{"another backend", rendezvousFlags{MaxNodes: one, Backend: "etcd", MasterPort: -1}, settled{"etcd", "", "fresh", "127.0.0.1", 0}},

		{"static", rendezvousFlags{MaxNodes: one, Backend: "static", MasterPort: -1}, settled{"static", "127.0.0.1:0", "fresh", "127.0.0.1", 0}},
		{"static, port", rendezvousFlags{MaxNodes: one, Backend: "static", MasterPort: 5}, settled{"static", "127.0.0.1:5", "fresh", "127.0.0.1", 5}},
		{"static, IPv6", rendezvousFlags{MaxNodes: one, Backend: "static", MasterAddr: "::1", MasterPort: 5}, settled{"static", "[::1]:5", "fresh", "::1", 5}},
		{"static, endpoint", rendezvousFlags{MaxNodes: one, Backend: "static", Endpoint: "[::1]:7", MasterAddr: "m", MasterPort: 5}, settled{"static", "[::1]:7", "fresh", "::1", 7}},

		{"two nodes", rendezvousFlags{MaxNodes: two, Endpoint: "h:1", MasterPort: -1}, settled{"c10d", "h:1", "none", "", 0}},
		{"two nodes, node rank", rendezvousFlags{MaxNodes: two, NodeRankGiven: true, MasterPort: -1}, settled{"static", "127.0.0.1:29500", "none", "127.0.0.1", 29500}},
		{"two nodes, master address", rendezvousFlags{MaxNodes: two, MasterAddr: "m", MasterPort: -1}, settled{"static", "m:29500", "none", "m", 29500}},
		{"two nodes, master port", rendezvousFlags{MaxNodes: two, MasterPort: 3}, settled{"static", "127.0.0.1:3", "none", "127.0.0.1", 3}},
		{"two nodes, c10d with a node rank", rendezvousFlags{MaxNodes: two, Backend: "c10d", NodeRankGiven: true, Endpoint: "h", MasterPort: 3}, settled{"c10d", "h", "none", "", 0}},
		{"two nodes, static", rendezvousFlags{MaxNodes: two, Backend: "static", MasterPort: -1, RunID: "job"}, settled{"static", "127.0.0.1:29500", "job", "127.0.0.1", 29500}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := settle(tt.in, func() string { return "fresh" })
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
