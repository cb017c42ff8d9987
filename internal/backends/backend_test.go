package backends

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
)

// brokenHandler is a handler whose shutdown fails.
type brokenHandler struct{ rdzv.Handler }

func (brokenHandler) Shutdown(context.Context) error { return errors.New("boom") }

// A rendezvous that cannot be shut down causes a warning and does not change the job's result.
func TestCloseWarns(t *testing.T) {
	var log strings.Builder
	(&Rendezvous{Handler: brokenHandler{}, log: zerolog.New(&log)}).Close(t.Context())
	const want = `{"level":"warn","error":"boom","message":"the rendezvous was not shut down in order"}` + "\n"
	if log.String() != want {
		t.Errorf("logged %s, want %s", &log, want)
	}
}

// Agents in several terminals that have no --rdzv-id may wait for each other in vain. Their warnings say why.
func TestWaitAdvice(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, tt := range []struct {
		args string
		want bool
	}{
		{"--nnodes=2 --rdzv-endpoint=local s.py", true},
		{"--nnodes=2 --rdzv-endpoint=local --rdzv-id=job s.py", false},
		{"--nnodes=2 --rdzv-endpoint=h s.py", false},
	} {
		cfg, err := config.Load(strings.Fields(tt.args), nil)
		if err != nil {
			t.Fatal(err)
		}
		var e elastic.Options
		Options{}.configure(cfg, &e)
		if advised := strings.Contains(e.WaitAdvice, cfg.RunID+")") && strings.Contains(e.WaitAdvice, "--rdzv-id=ID"); advised != tt.want {
			t.Errorf("%s: %q", tt.args, e.WaitAdvice)
		}
	}
}
