package doctor

import (
	"context"
	"errors"
	"testing"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// A signal that comes while the machine is checked is what the launcher ends with, not what it has done to the checks.
func TestPreflightTold(t *testing.T) {
	told := errors.New("told")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(told)
	cfg := &config.Config{
		Preflight: true, NoPython: true, MaxNodes: 2,
		Rendezvous: config.Rendezvous{Backend: rdzv.BackendC10d, Endpoints: []config.HostPort{{Host: "127.0.0.1", Port: 1}}},
	}
	if err := Preflight(ctx, cfg, "test", zerolog.Nop()); !errors.Is(err, told) {
		t.Errorf("got %v", err)
	}
}
