package config

import (
	"strings"
	"testing"
)

func TestChoosesEndpoints(t *testing.T) {
	for _, tt := range []struct {
		where, env, args string
		want             bool
	}{
		{"no scheduler", "", "--nnodes=3 --rdzv-endpoint=h", true},
		{"Slurm", stepEnv, "", false},
		{"Slurm, with an endpoint", stepEnv, "--rdzv-endpoint=h", false},
		{"Kubernetes, with an endpoint", podEnv, "--nnodes=3 --rdzv-endpoint=h --rdzv-id=j", false},
	} {
		from := surroundings{env: environ(tt.env).lookup, host: podHost, self: []string{"PROG"}}
		c := resolved(t, from, strings.Fields(tt.args)...)
		if got := c.ChoosesEndpoints(); got != tt.want {
			t.Errorf("%s: %v, want %v (scheduler %q)", tt.where, got, tt.want, c.Scheduler)
		}
	}
}
