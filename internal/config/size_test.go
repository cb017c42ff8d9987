package config

import (
	"strings"
	"testing"
)

func TestMultiples(t *testing.T) {
	for _, tt := range []struct {
		args           string
		low, high, all int
		problem        string
	}{
		{args: "--nnodes=1:7", low: 1, high: 7, all: 1},
		{args: "--nnodes=1:7 --nnodes-multiple=2", low: 2, high: 6, all: 2},
		{args: "--nnodes=4 --nnodes-multiple=4", low: 4, high: 4, all: 4},
		{args: "--nnodes=1:7 --nproc-per-node=4 --world-size-multiple=8", low: 2, high: 6, all: 2},
		{args: "--nnodes=1:7 --nproc-per-node=4 --world-size-multiple=2", low: 1, high: 7, all: 1},
		{args: "--nnodes=1:40 --nproc-per-node=6 --world-size-multiple=9 --nnodes-multiple=2", low: 6, high: 36, all: 6},
		{
			args:    "--nnodes=2:3 --nnodes-multiple=4",
			problem: "--nnodes-multiple=4: the number of nodes must be a multiple of 4, and --nnodes allows 2 to 3",
		},
		{
			args:    "--nnodes=3 --nproc-per-node=2 --world-size-multiple=8",
			problem: "--world-size-multiple=8: the number of nodes must be a multiple of 4 (2 workers on each), and --nnodes allows 3 to 3",
		},
		{args: "--nnodes-multiple=0", problem: "--nnodes-multiple=0: must be between 1 and 1048576"},
		{args: "--world-size-multiple=x", problem: "--world-size-multiple=x: must be a whole number"},
	} {
		args := append(strings.Fields(tt.args), "--rdzv-endpoint=node0", "--rdzv-id=job", "s.py")
		c, err := resolveArgs(machine{}, args...)
		if tt.problem != "" {
			if err == nil || err.Error() != tt.problem {
				t.Errorf("%s: %v, want %s", tt.args, err, tt.problem)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.args, err)
		} else if c.MinNodes != tt.low || c.MaxNodes != tt.high || c.NodesMultiple != tt.all {
			t.Errorf("%s: %d to %d nodes by %d", tt.args, c.MinNodes, c.MaxNodes, c.NodesMultiple)
		}
	}
}
