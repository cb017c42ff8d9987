package elastic

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// unsteady is a store that can be told to answer no commit, although it may do it.
type unsteady struct {
	coord.Store
	down   atomic.Bool
	does   atomic.Bool
	failed chan struct{} // a value for each that was not answered
}

func (u *unsteady) Commit(ctx context.Context, guards []coord.Guard, ops []coord.Op) (coord.Revision, error) {
	if !u.down.Load() {
		return u.Store.Commit(ctx, guards, ops)
	}
	if u.does.Load() {
		_, _ = u.Store.Commit(ctx, guards, ops)
	}
	u.failed <- struct{}{}
	return 0, coord.ErrUnavailable
}

// A leader whose store is away for longer than it takes to resign leads again, or another does.
func TestLeaderAfterAnOutage(t *testing.T) {
	for _, does := range []bool{false, true} {
		t.Run(fmt.Sprintf("commits are done: %v", does), func(t *testing.T) {
			server := coord.NewServer(coord.ServerOptions{})
			defer server.Close()
			open := func() coord.Store {
				s, err := server.Local()
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			store := &unsteady{Store: open(), failed: make(chan struct{}, 1000)}
			store.does.Store(does)
			ctx, cancel := context.WithCancel(t.Context())
			var leading sync.WaitGroup
			defer leading.Wait()
			defer cancel()
			epochs := make(chan coord.Revision, 1000)
			leading.Go(func() {
				lead := leaderDriver{store: store, prefix: prefixOf("run"), log: zerolog.Nop(), onDecision: func(l *leader) { epochs <- l.epoch }}
				_ = lead.Run(ctx)
			})
			first := await(t, "the first term", epochs)
			store.down.Store(true)
			soon := job(1, 2)
			soon.LastCall = 0
			agent := &driver{store: open(), prefix: prefixOf("run"), timeout: probeTimeout}
			if err := agent.putReport(ctx, Report{Phase: Ready, Job: soon, Node: Node{Identity: "a", Nproc: 1}}); err != nil {
				t.Fatal(err)
			}
			for range 4 { // the decision, the resignation, and what comes after
				await(t, "a commit that is not answered", store.failed)
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

// The host of the store stays until everybody has heard of the end, also where that takes the leader many commits.
func TestHostStaysToTheEnd(t *testing.T) {
	const n = 300
	hs := make([]*Handler, n)
	waits := make([]<-chan joined, n)
	port := freeTCPPort(t)
	for i := range hs {
		hs[i] = newTestHandler(t, job(n, n), port, fmt.Sprintf("node%d", i))
		hs[i].log = zerolog.Nop()
		hs[i].opts.Stores = WorkerStores{WorkersHost: true, Ports: Ports{1, 1}, Addr: "127.0.0.1"}
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
			if _, err := h.Succeed(t.Context()); err != nil {
				t.Errorf("node %d: %v", i, err)
			}
			if err := h.Shutdown(t.Context()); err != nil {
				t.Errorf("node %d: Shutdown: %v", i, err)
			}
		})
	}
	ends.Wait()
}

// A worker store that is not reached is not this node's end if the round turns out to be over.
func TestWorkerStoreIsNotReached(t *testing.T) {
	h := New(Options{Job: job(2, 3)})
	h.driveDone = make(chan struct{})
	h.m = newMember(memberOptions{}, 0)
	h.m.state = busy
	var driving sync.WaitGroup
	driving.Go(func() {
		for {
			select {
			case call := <-h.calls:
				call(0)
			case <-h.driveDone:
				return
			}
		}
	})
	go func() {
		h.stops <- rdzv.Stop{Round: 2} // an older one
		h.stops <- rdzv.Stop{Round: 3}
	}()
	nowhere := Offer{Addrs: []string{"127.0.0.1"}, Port: freeTCPPort(t), Nonce: "00"}
	if addr, err := h.findWorkerStore(t.Context(), 3, nowhere); !errors.Is(err, errRoundOver) {
		t.Errorf("reached %q, %v", addr, err)
	}
	close(h.driveDone)
	driving.Wait()
	if u := h.m.report.Unreached; u == nil || !strings.Contains(u.Why, "refused") || !h.m.dirty {
		t.Errorf("it was told to report %+v", u)
	}
	h.opts.Job.Rejoin, h.opts.Job.JoinTimeout = 0, 0
	if addr, err := h.findWorkerStore(t.Context(), 3, nowhere); !errors.Is(err, rdzv.ErrConnection) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("reached %q, %v", addr, err)
	}
}
