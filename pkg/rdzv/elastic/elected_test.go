package elastic

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// TestSilentStoreIsAnnounced checks that an agent whose store outside of the agents hangs at first says so soon.
func TestSilentStoreIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		e := &Elected{Logger: zerolog.New(&log), Dial: func(ctx context.Context) (coord.Store, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := e.Open(ctx)
			ended <- err
		}()
		<-time.After(2 * time.Second)
		synctest.Wait()
		if got := log.String(); !strings.Contains(got, "the rendezvous does not answer yet: this node keeps trying for another") {
			t.Errorf("after 2s the log has %q", got)
		}
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// A finished agent that leads, and receives a signal to leave, takes no healthy workers with it.
func TestFinishedLeaderLeaves(t *testing.T) {
	server := coord.NewServer(coord.ServerOptions{SessionTTL: 10 * time.Second})
	defer server.Close()
	j := job(3, 3)
	j.TTL = 10 * time.Second
	var hs []*Handler
	var waits []<-chan joined
	for _, name := range []string{"node0", "node1", "node2"} {
		h := newTestHandler(t, j, 0, name)
		h.opts.Access = &Elected{
			RunID: "run", Dial: func(context.Context) (coord.Store, error) { return server.Local() }, Logger: zerolog.Nop(),
		}
		waits, hs = append(waits, enter(t, h, nil)), append(hs, h)
		awaitAgents(t, server, len(hs)) // so the first one leads
	}
	for _, w := range waits {
		if got := await(t, "round", w); got.err != nil {
			t.Fatal(got.err)
		}
	}
	ctx, interrupt := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := hs[0].Succeed(ctx, time.Minute)
		ended <- err
	}()
	signal := errors.New("a signal")
	interrupt(signal) // the leader has yet to see the success
	if err := await(t, "the signal", ended); !errors.Is(err, signal) {
		t.Fatal(err)
	}
	hs[0].Leave()
	if err := hs[0].Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSuccess(t, hs[1:]...)
}

// awaitAgents waits until n agents have reported.
func awaitAgents(t *testing.T, server *coord.Server, n int) {
	t.Helper()
	err := Observe(t.Context(), localStore(t, server), "run", func(s Snapshot) error {
		if len(s.Agents) < n {
			return nil
		}
		return errListed
	})
	if !errors.Is(err, errListed) {
		t.Fatal(err)
	}
}
