package membership

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// simulation is a group whose members call each other while it drains.
type simulation struct {
	t          *testing.T
	works      []*Work
	mu         sync.Mutex // guards rng
	rng        *rand.Rand
	running    atomic.Int64 // functions and calls under way
	done       atomic.Bool  // the group has been notified that nothing is under way
	refused    atomic.Int64
	lateStarts atomic.Int64 // functions that began after their callers had given up
	wg         sync.WaitGroup
}

func (w *simulation) intn(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

func (w *simulation) pause(most time.Duration) { <-time.After(time.Duration(w.intn(int(most)))) }

// work runs one piece of work whose Begin has returned.
func (w *simulation) work(do func()) {
	w.running.Add(1)
	if w.done.Load() {
		w.t.Error("work begins after the group was notified that nothing is outstanding")
	}
	do()
	w.running.Add(-1)
}

// call calls a function of to, which may call others. The call ends after a timeout, even if the function has not
// returned.
func (w *simulation) call(ctx context.Context, to, depth int) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+w.intn(int(20*time.Millisecond))))
	defer cancel()
	answered := make(chan struct{})
	w.wg.Go(func() {
		defer close(answered)
		w.pause(25 * time.Millisecond) // network delay: the request may arrive after the end of its call
		// A receiver does not always learn that the caller has given up.
		if err := w.works[to].Begin(context.WithoutCancel(ctx)); err != nil {
			w.refused.Add(1)
			return
		}
		defer w.works[to].End()
		if ctx.Err() != nil {
			w.lateStarts.Add(1)
		}
		w.work(func() { w.function(context.WithoutCancel(ctx), to, depth) })
	})
	select {
	case <-answered:
	case <-ctx.Done():
	}
}

func (w *simulation) function(ctx context.Context, self, depth int) {
	w.pause(10 * time.Millisecond)
	for range w.intn(3) {
		if depth == 0 {
			break
		}
		ctx, cancel := context.WithTimeout(ctx, time.Duration(1+w.intn(int(10*time.Millisecond))))
		if err := w.works[self].Begin(ctx); err == nil {
			w.work(func() { w.call(ctx, w.intn(len(w.works)), depth-1) })
			w.works[self].End()
		}
		cancel()
	}
}

// run lets all members work and drain. Each uses its own store.
func (w *simulation) run(ctx context.Context, stores func(rank int) kvstore.Store) []error {
	n := len(w.works)
	errs := make([]error, n)
	for rank := range n {
		w.wg.Go(func() {
			var roots sync.WaitGroup
			for range w.intn(4) {
				roots.Go(func() {
					if err := w.works[rank].BeginRoot(); err == nil {
						w.work(func() { w.call(ctx, w.intn(n), 3) })
						w.works[rank].EndRoot()
					}
				})
			}
			w.pause(20 * time.Millisecond)
			errs[rank] = w.works[rank].Drain(ctx, stores(rank), member(rank, n))
			roots.Wait()
		})
	}
	w.wg.Wait()
	return errs
}

// watched wraps one member's store. It delays each operation before and after, and checks the state when the group is
// notified.
func (w *simulation) watched(store kvstore.Store) kvstore.Store {
	return &hooked{Store: store, around: func(ctx context.Context, op, key string, carryOut func() error) error {
		w.pause(5 * time.Millisecond)
		if op == "set" && key == doneKey {
			w.done.Store(true)
			if n := w.running.Load(); n != 0 {
				w.t.Errorf("the group is notified while %d functions and calls are under way", n)
			}
		}
		err := carryOut()
		w.pause(5 * time.Millisecond)
		return err
	}}
}

// The group is never notified while work runs or can still begin, and in the end it is notified.
func TestDrainSimulated(t *testing.T) {
	var refused, lateStarts, again int64
	for seed := range uint64(400) {
		synctest.Test(t, func(t *testing.T) {
			w := &simulation{t: t, rng: rand.New(rand.NewPCG(seed, 0))}
			for range 1 + w.intn(6) {
				w.works = append(w.works, NewWork())
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			store := kvstore.NewHashStore()
			var downs atomic.Int64
			counted := &hooked{Store: store}
			counted.around = func(_ context.Context, op, _ string, carryOut func() error) error {
				if op == "compare" {
					downs.Add(1)
				}
				return carryOut()
			}
			for rank, err := range w.run(ctx, func(int) kvstore.Store { return w.watched(counted) }) {
				if err != nil {
					t.Errorf("seed %d: rank %d: %v", seed, rank, err)
				}
			}
			if !w.done.Load() || w.running.Load() != 0 {
				t.Errorf("seed %d: done %v, %d under way", seed, w.done.Load(), w.running.Load())
			}
			refused, lateStarts, again = refused+w.refused.Load(), lateStarts+w.lateStarts.Load(), again+downs.Load()
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d functions refused, %d begun after their caller had given up, %d times no longer idle",
		refused, lateStarts, again)
	if refused == 0 || lateStarts == 0 || again == 0 {
		t.Error("the simulation does not cover all cases")
	}
}

// The same, but one operation of one member fails. The group is never notified too early, and a failed drain names the
// reason.
func TestDrainSimulatedWithFaults(t *testing.T) {
	ends := map[string]int{}
	for seed := range uint64(600) {
		synctest.Test(t, func(t *testing.T) {
			w := &simulation{t: t, rng: rand.New(rand.NewPCG(seed, 1))}
			for range 2 + w.intn(4) {
				w.works = append(w.works, NewWork())
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			store, rank, f := kvstore.NewHashStore(), w.intn(len(w.works)), faults(w.intn(14))[w.intn(8)]
			errs := w.run(ctx, func(i int) kvstore.Store {
				if i == rank {
					return newFaulty(w.watched(store), f)
				}
				return w.watched(store)
			})
			for i, err := range errs {
				var missing *MissingError
				switch {
				case err == nil:
					ends["success"]++
					if w.running.Load() != 0 {
						t.Errorf("seed %d: rank %d has succeeded while work is under way", seed, i)
					}
				case i == rank:
					ends["its own"]++
				case errors.As(err, &missing):
					ends["missing"]++
					if !slices.Equal(missing.Ranks, []int{rank}) {
						t.Errorf("seed %d: rank %d: %v, want rank %d", seed, i, err, rank)
					}
				default:
					t.Errorf("seed %d: rank %d: %v", seed, i, err)
				}
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Log(ends)
	if len(ends) < 3 {
		t.Error("the simulation does not cover all cases")
	}
}
