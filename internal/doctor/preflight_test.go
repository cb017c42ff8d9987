package doctor

import (
	"context"
	"errors"
	"testing"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// A signal during the checks is the reason why the launcher ends, not the checks that it interrupts.
func TestPreflightInterrupted(t *testing.T) {
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(interrupted)
	cfg := &config.Config{
		Preflight: true, NoPython: true, MaxNodes: 2,
		Rendezvous: config.Rendezvous{Backend: rdzv.BackendC10d, Endpoints: []config.HostPort{{Host: "127.0.0.1", Port: 1}}},
	}
	if err := Preflight(ctx, cfg, "test", zerolog.Nop()); !errors.Is(err, interrupted) {
		t.Errorf("got %v", err)
	}
}
