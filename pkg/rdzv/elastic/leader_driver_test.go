package elastic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/boottime"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
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
			store := &unreliableStore{Store: localStore(t, server), failed: make(chan struct{}, 1000)}
			store.commits.Store(commits)
			ctx, cancel := context.WithCancel(t.Context())
			var leading sync.WaitGroup
			defer leading.Wait()
			defer cancel()
			leaders := make(chan *rounds.Leader, 1000)
			leading.Go(func() {
				d := newLeaderDriver(store, "run", zerolog.Nop())
				d.onDecision = func(l *rounds.Leader) { leaders <- l }
				_ = d.Run(ctx)
			})
			first := await(t, "the first term", leaders)
			store.down.Store(true)
			soon := job(1, 2)
			soon.LastCall = 0
			agent := &driver{
				store: localStore(t, server), prefix: rounds.PrefixOf("run"), timeout: probeTimeout, clock: boottime.Now,
			}
			if err := agent.putReport(ctx, rounds.Report{Phase: rounds.Ready, Job: soon, Node: rounds.Node{Identity: "a", Nproc: 1}}); err != nil {
				t.Fatal(err)
			}
			for range 4 { // the decision, the resignation, and attempts after it
				await(t, "a failed commit", store.failed)
			}
			store.down.Store(false)
			for l := first; l == first; {
				l = await(t, "another term", leaders)
			}
			err := agent.store.Watch(ctx, rounds.PrefixOf("run")+rounds.PrefixAnswer, func(b coord.Batch) error {
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
	hs := startJob(t, job(n, n), n, func(_ int, h *Handler) {
		h.log = zerolog.Nop()
		h.opts.Stores = WorkerStores{WorkersHost: true, Ports: machine.Ports{Low: 1, High: 1}, Addr: "127.0.0.1"}
		// A busy machine may take seconds to answer so many agents.
		h.opts.KeepAlive, h.opts.Timeout = 5*time.Second, 10*time.Second
		access := h.opts.Access.(*C10d)
		access.TTL, access.Linger = 30*time.Second, time.Minute
	})
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

// TestLargeJobFits checks that the leader can commit the rounds of large jobs, and that the next leader can read them.
func TestLargeJobFits(t *testing.T) {
	type job struct{ nodes, losses int }
	jobs := []job{{3, 1}, {12000, 2}, {20000, 0}}
	if testenv.Whole(t) {
		jobs = append(jobs, job{9000, 1}, job{12000, 0}, job{12000, 1})
	}
	for _, c := range jobs {
		t.Run(fmt.Sprintf("%d nodes, each lost %d times", c.nodes, c.losses), func(t *testing.T) {
			server := coord.NewServer(coord.ServerOptions{SessionTTL: time.Second})
			defer server.Close()
			store := localStore(t, server)
			d := newLeaderDriver(store, "run", zerolog.Nop())
			epoch, err := d.campaign(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			want := largeRecord(c.nodes, c.losses)
			err = d.commit(t.Context(), epoch, []rounds.Write{
				{Key: rounds.JobKey(0), Value: rounds.Job{Min: 1}},
				{Key: rounds.RoundKey(want.Round), Value: want, Create: true},
			})
			if err != nil {
				t.Fatal(err)
			}
			saved, err := d.readState(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(want, *saved.Record) { // cmp.Diff takes seconds
				t.Error("the record differs from the one committed")
			}
			view := seeOnce(t, store)
			if view.Record == nil || len(view.Record.Members) != c.nodes {
				t.Error("an observer does not see the round")
			}
		})
	}
}

// seeOnce looks at a run.
func seeOnce(t *testing.T, store coord.Store) (v Snapshot) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_ = Observe(ctx, store, "run", func(seen Snapshot) error {
		v = seen
		cancel()
		return context.Canceled
	})
	return v
}

// largeRecord returns a round of n nodes that were lost that many times each, with as many random bytes as a real one.
func largeRecord(n, losses int) rounds.Record {
	rng := rand.New(rand.NewPCG(1, 2))
	r := rounds.Record{Round: 7, Members: make([]rounds.RecordMember, n)}
	if losses > 0 {
		r.Losses = map[string][]time.Duration{}
	}
	for i := range r.Members {
		m := &r.Members[i]
		m.ID, m.Identity = coord.SessionID(fmt.Sprintf("%032x", rng.Uint64())), fmt.Sprintf("machine:%016x/0", rng.Uint64())
		m.Host, m.Role, m.Nproc = fmt.Sprintf("node%05d.cluster.example", i), "default", 8
		for range losses {
			r.Losses[m.Identity] = append(r.Losses[m.Identity], time.Duration(rng.Int64N(600_000))*time.Millisecond)
		}
	}
	return r
}
