package elastic

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// An agent whose own store can no longer be reached by the others, or has ended, loses its session like they do.
func TestHostLosesItsStore(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		end        func(a *C10d, stopListening func())
	}{
		{"the port is gone", "does not accept connections any more", func(_ *C10d, stopListening func()) { stopListening() }},
		{"the store has ended", "no space left", func(a *C10d, _ func()) {
			a.Server().Fail(errors.Join(coord.ErrUnavailable, errors.New("no space left")))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := &C10d{RunID: ownRun(t), Version: "test", TTL: 10 * time.Second, Logger: zerolog.Nop()}
			ln := listenAt(t, 0)
			session, err := a.serve(t.Context(), ln, nil)
			if err != nil {
				t.Fatal(err)
			}
			tt.end(a, func() { _ = ln.Close() })
			select {
			case <-session.Lost():
			case <-time.After(20 * time.Second):
				t.Fatal("the host's own session lives on")
			}
			if err := session.Err(); !errors.Is(err, coord.ErrUnavailable) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("the session was lost for %v", err)
			}
			_ = a.Close(t.Context()) // the port's error is told again
		})
	}
}
