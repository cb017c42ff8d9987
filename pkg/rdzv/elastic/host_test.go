package elastic

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
)

// A host that cannot lead releases its port and its claims, so that another agent of this machine can host the run.
func TestServeReleasesEverythingOnFailure(t *testing.T) {
	for _, tt := range []struct {
		name     string
		oneOfAll bool // the port is one of several candidates, which takes the claim to the run
	}{{"only port", false}, {"one of several ports", true}} {
		t.Run(tt.name, func(t *testing.T) {
			runID, ln := uniqueRunID(t), listenAt(t, 0)
			port := portOf(ln)
			take := func() (io.Closer, error) { return machine.Claim(runID, port) }
			var run io.Closer
			if tt.oneOfAll {
				var err error
				take = func() (io.Closer, error) { return machine.ClaimRun(runID, 0) }
				if run, err = take(); err != nil {
					t.Fatal(err)
				}
			}
			a := &C10d{RunID: runID, Version: "test", TTL: time.Minute, Ports: []int{port}, Logger: zerolog.Nop()}
			h := a.newHost(ln, run, nil)
			if err := h.server.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := take(); !errors.Is(err, syscall.EADDRINUSE) {
				t.Fatalf("while the host lives, its claim can be taken: %v", err)
			}
			if _, err := a.serve(t.Context(), h); !errors.Is(err, coord.ErrServerClosed) {
				t.Fatalf("serve on a closed store: %v", err)
			}
			if a.hosted() != nil {
				t.Error("the access still has a host")
			}
			_ = listenAt(t, port).Close()
			again, err := take()
			if err != nil {
				t.Fatalf("the claim is still held: %v", err)
			}
			_ = again.Close()
		})
	}
}

// A host's own agent loses its session like the others when nobody can reach the store any more, or when it has ended.
func TestHostLosesItsStore(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		end        func(a *C10d, stopListening func())
	}{
		{
			"the port is gone", "does not accept connections any more",
			func(_ *C10d, stopListening func()) { stopListening() },
		},
		{"the store has ended", "no space left", func(a *C10d, _ func()) {
			a.hosted().server.Fail(errors.Join(coord.ErrUnavailable, errors.New("no space left")))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := &C10d{RunID: uniqueRunID(t), Version: "test", TTL: 10 * time.Second, Logger: zerolog.Nop()}
			ln := listenAt(t, 0)
			session, err := a.serve(t.Context(), a.newHost(ln, nil, nil))
			if err != nil {
				t.Fatal(err)
			}
			tt.end(a, func() { _ = ln.Close() })
			select {
			case <-session.Lost():
			case <-time.After(20 * time.Second):
				t.Fatal("the host's own session is still alive")
			}
			if err := session.Err(); !errors.Is(err, coord.ErrUnavailable) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("the session was lost: %v", err)
			}
			_ = a.Close(t.Context(), true) // returns the listener's error again
		})
	}
}
