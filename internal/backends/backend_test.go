package backends

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// brokenHandler is a handler whose shutdown fails.
type brokenHandler struct{ rdzv.Handler }

func (brokenHandler) Shutdown(context.Context) error { return errors.New("boom") }

// A rendezvous that cannot be shut down is a warning: what the job came to stands.
func TestCloseWarns(t *testing.T) {
	var log strings.Builder
	(&Rendezvous{Handler: brokenHandler{}, log: zerolog.New(&log)}).Close(t.Context())
	const want = `{"level":"warn","error":"boom","message":"the rendezvous was not shut down in order"}` + "\n"
	if log.String() != want {
		t.Errorf("logged %s, want %s", &log, want)
	}
}
