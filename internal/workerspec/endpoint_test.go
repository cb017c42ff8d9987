package workerspec

import (
	"context"
	"net"
	"testing"

	"github.com/elasticrun/elasticrun/internal/config"
)

// TestCheckEndpoint checks which endpoints are looked up as a misspelled local, and what follows.
func TestCheckEndpoint(t *testing.T) {
	const meant = "did you mean local, for agents in several terminals of this machine?"
	unknown, silent := &net.DNSError{IsNotFound: true}, &net.DNSError{IsTimeout: true}
	for _, tt := range []struct {
		endpoint, backend  string
		nodes              int
		source             config.SourceKind
		found              error
		asked              bool
		refusal, complaint string
	}{
		{
			endpoint: "lcoal", found: unknown, asked: true,
			refusal: "--rdzv-endpoint=lcoal: no host has this name; " + meant + " (write lcoal:PORT for a host that gets the name later)",
		},
		{
			endpoint: "LOCAL", found: unknown, asked: true,
			refusal: "--rdzv-endpoint=LOCAL: no host has this name; " + meant + " (write LOCAL:PORT for a host that gets the name later)",
		},
		{endpoint: "locale", asked: true},
		{
			endpoint: "loca", found: silent, asked: true,
			complaint: "--rdzv-endpoint=loca: the name cannot be looked up now; " + meant,
		},
		{endpoint: "lcoal", nodes: 1},
		{endpoint: "lcoal", backend: "etcd"},
		{endpoint: "lcoal", source: config.FromScheduler},
		{endpoint: "lcoal:29400"},
		{endpoint: "l.ocal"},
		{endpoint: "localhost"},
		{endpoint: "node0"},
	} {
		if tt.nodes == 0 {
			tt.nodes = 2
		}
		if tt.backend == "" {
			tt.backend = "c10d"
		}
		if tt.source == 0 {
			tt.source = config.FromFlag
		}
		cfg := &config.Config{MaxNodes: tt.nodes, Settings: []config.Setting{
			{Name: "rdzv-endpoint", Value: tt.endpoint, Source: config.Source{Kind: tt.source}},
		}}
		cfg.Rendezvous.Backend, cfg.Rendezvous.Endpoint = tt.backend, tt.endpoint
		asked := false
		err := checkEndpoint(t.Context(), cfg, func(_ context.Context, host string) ([]string, error) {
			asked = host == tt.endpoint
			return nil, tt.found
		})
		refusal, complaint := "", ""
		if err != nil {
			refusal = err.Error()
		}
		if len(cfg.Warnings) > 0 {
			complaint = cfg.Warnings[0]
		}
		if asked != tt.asked || refusal != tt.refusal || complaint != tt.complaint {
			t.Errorf("%s: asked: %v, %q, %q", tt.endpoint, asked, refusal, complaint)
		}
	}
}
