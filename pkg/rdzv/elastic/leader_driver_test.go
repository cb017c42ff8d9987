package elastic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// unreliableStore is a store whose commits can be made to fail, whether they are done or not.
type unreliableStore struct {
	coord.Store
	down    atomic.Bool
	commits atomic.Bool   // while it is down
	failed  chan struct{} // a value for each commit that failed
}

func (s *unreliableStore) Commit(ctx context.Context, guards []coord.Guard, ops []coord.Op) (coord.Revision, error) {
	if !s.down.Load() {
		return s.Store.Commit(ctx, guards, ops)
	}
	if s.commits.Load() {
		_, _ = s.Store.Commit(ctx, guards, ops)
	}
	s.failed <- struct{}{}
	return 0, coord.ErrUnavailable
}

// TestLeaderAfterAnOutage checks that a new term begins after the store was down for longer than a leader takes to
// resign.
func TestLeaderAfterAnOutage(t *testing.T) {
	for _, commits := range []bool{false, true} {
		t.Run(fmt.Sprintf("failed commits are done: %v", commits), func(t *testing.T) {
			server := coord.NewServer(coord.ServerOptions{})
			defer server.Close()
			open := func() coord.Store {
				s, err := server.Local()
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			store := &unreliableStore{Store: open(), failed: make(chan struct{}, 1000)}
			store.commits.Store(commits)
			ctx, cancel := context.WithCancel(t.Context())
			var leading sync.WaitGroup
			defer leading.Wait()
			defer cancel()
			epochs := make(chan coord.Revision, 1000)
			leading.Go(func() {
				d := newLeaderDriver(store, "run", zerolog.Nop())
				d.onDecision = func(l *leader) { epochs <- l.epoch }
				_ = d.Run(ctx)
			})
			first := await(t, "the first term", epochs)
			store.down.Store(true)
			soon := job(1, 2)
			soon.LastCall = 0
			agent := &driver{store: open(), prefix: prefixOf("run"), timeout: probeTimeout}
			if err := agent.putReport(ctx, Report{Phase: Ready, Job: soon, Node: Node{Identity: "a", Nproc: 1}}); err != nil {
				t.Fatal(err)
			}
			for range 4 { // the decision, the resignation, and attempts after it
				await(t, "a failed commit", store.failed)
			}
			store.down.Store(false)
			for epoch := first; epoch <= first; {
				epoch = await(t, "another term", epochs)
			}
			err := agent.store.Watch(ctx, prefixOf("run")+prefixAnswer, func(b coord.Batch) error {
				if len(b.Events) > 0 {
					return errListed
				}
				return nil
			})
			if !errors.Is(err, errListed) {
				t.Error(err)
			}
		})
	}
}

// TestHostStaysToTheEnd checks that the host of the store stays until all agents have read the outcome, even if the
// leader needs many commits to write it.
func TestHostStaysToTheEnd(t *testing.T) {
	const n = 300
	hs := make([]*Handler, n)
	waits := make([]<-chan joined, n)
	port := freeTCPPort(t)
	for i := range hs {
		hs[i] = newTestHandler(t, job(n, n), port, fmt.Sprintf("node%d", i))
		hs[i].log = zerolog.Nop()
		hs[i].opts.Stores = WorkerStores{WorkersHost: true, Ports: Ports{1, 1}, Addr: "127.0.0.1"}
		// A busy machine may take seconds to answer so many agents.
		hs[i].opts.KeepAlive, hs[i].opts.Timeout = 5*time.Second, 10*time.Second
		access := hs[i].opts.Access.(*C10d)
		access.TTL, access.Linger = 30*time.Second, time.Minute
		waits[i] = enter(t, hs[i], nil)
		if i == 0 {
			awaitHost(t, hs[0])
		}
	}
	for _, w := range waits {
		if got := await(t, "first round", w); got.err != nil {
			t.Fatal(got.err)
		}
	}
	var ends sync.WaitGroup
	for i, h := range hs {
		ends.Go(func() {
			if _, err := h.Succeed(t.Context(), rdzv.NoTimeout); err != nil {
				t.Errorf("node %d: %v", i, err)
			}
			if err := h.Shutdown(t.Context()); err != nil {
				t.Errorf("node %d: Shutdown: %v", i, err)
			}
		})
	}
	ends.Wait()
}
