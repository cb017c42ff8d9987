package membership

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

func TestWorkWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWork()
		if err := w.BeginRoot(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 2)
		for range 2 {
			go func() { ended <- w.Wait(t.Context()) }()
		}
		synctest.Wait()
		if err := w.BeginRoot(); !errors.Is(err, ErrShutdown) {
			t.Errorf("root call of a member that leaves: %v", err)
		}
		if err := w.Begin(t.Context()); err != nil {
			t.Errorf("work that its outstanding work leads to: %v", err)
		}
		w.End()
		synctest.Wait()
		if len(ended) != 0 {
			t.Error("Wait has not waited")
		}
		w.EndRoot()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if err := w.Begin(t.Context()); !errors.Is(err, ErrShutdown) {
			t.Errorf("work after the end: %v", err)
		}
	})
}

// A worker that leaves waits for its own calls first. Functions still run here, because those calls may depend on them.
func TestWorkWaitRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWork()
		for range 2 {
			if err := w.BeginRoot(); err != nil {
				t.Fatal(err)
			}
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := w.WaitRoots(short)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "2 calls") {
			t.Errorf("WaitRoots = %v", err)
		}
		if err := w.BeginRoot(); !errors.Is(err, ErrShutdown) {
			t.Errorf("root call of a member that leaves: %v", err)
		}
		ended := make(chan error, 1)
		go func() { ended <- w.WaitRoots(t.Context()) }()
		w.EndRoot()
		if err := w.Begin(t.Context()); err != nil {
			t.Errorf("a function that a root call waits for: %v", err)
		}
		synctest.Wait()
		if len(ended) != 0 {
			t.Error("WaitRoots has not waited")
		}
		w.EndRoot()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := w.WaitRoots(t.Context()); err != nil {
			t.Error(err)
		}
		go func() { ended <- w.Wait(t.Context()) }()
		synctest.Wait()
		if len(ended) != 0 {
			t.Error("Wait has not waited for a function")
		}
		w.End()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestWorkCloseEndsWaitRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ended := NewWork(), make(chan error, 1)
		if err := w.BeginRoot(); err != nil {
			t.Fatal(err)
		}
		go func() { ended <- w.WaitRoots(t.Context()) }()
		synctest.Wait()
		w.Close()
		w.Close()
		if err := <-ended; !errors.Is(err, ErrShutdown) {
			t.Errorf("WaitRoots = %v", err)
		}
		w.EndRoot()
	})
}

func TestWorkWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWork()
		if err := w.BeginRoot(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 calls") {
			t.Errorf("Wait = %v", err)
		}
		if err := w.Begin(t.Context()); !errors.Is(err, ErrShutdown) {
			t.Errorf("work after the end: %v", err)
		}
		w.EndRoot()
	})
}

// A slow store delays work no longer than the work's own context.
func TestWorkBeginIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &hooked{Store: kvstore.NewHashStore()}
		slow.around = func(ctx context.Context, op, _ string, carryOut func() error) error {
			if op == "compare" {
				<-time.After(time.Minute)
			}
			return carryOut()
		}
		w, ended := NewWork(), make(chan error, 1)
		go func() { ended <- w.Drain(t.Context(), slow, member(0, 2)) }()
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Begin(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Begin = %v", err)
		}
		if err := w.Begin(t.Context()); err != nil {
			t.Errorf("Begin without a deadline = %v", err)
		}
		w.End()
		if err := NewWork().Drain(t.Context(), slow, member(1, 2)); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestDrainOfDynamicGroup(t *testing.T) {
	err := NewWork().Drain(t.Context(), kvstore.NewHashStore(), Record{Name: "a"})
	if _, ok := errors.AsType[*WorldSizeError](err); !ok {
		t.Error(err)
	}
}

func TestWorkClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, store := NewWork(), kvstore.NewHashStore()
		ended := make(chan error, 1)
		go func() { ended <- w.Drain(t.Context(), store, member(0, 2)) }()
		synctest.Wait()
		w.Close()
		if err := <-ended; !errors.Is(err, ErrShutdown) {
			t.Errorf("Drain = %v", err)
		}
		err, root := w.Begin(t.Context()), w.BeginRoot()
		if !errors.Is(err, ErrShutdown) || !errors.Is(root, ErrShutdown) {
			t.Errorf("work after Close: %v, %v", err, root)
		}
	})
}

// Work for an idle member is admitted once the group knows, and delays the end of the group.
func TestDrainAdmitsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, works := kvstore.NewHashStore(), []*Work{NewWork(), NewWork()}
		if err := works[1].BeginRoot(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 2)
		for rank, w := range works {
			go func() { ended <- w.Drain(t.Context(), store, member(rank, 2)) }()
		}
		synctest.Wait()
		if err := works[0].Begin(t.Context()); err != nil { // member 1 calls member 0, which is idle
			t.Fatal(err)
		}
		works[1].EndRoot() // member 1 gives up the call
		synctest.Wait()
		if len(ended) != 0 {
			t.Fatal("a drain has ended with a function that runs")
		}
		if err := works[1].Begin(t.Context()); err != nil { // the function calls back
			t.Fatal(err)
		}
		works[1].End()
		works[0].End()
		for range works {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		for _, w := range works {
			if err := w.Begin(t.Context()); !errors.Is(err, ErrShutdown) {
				t.Errorf("work after the end: %v", err)
			}
		}
		if err := works[0].Drain(t.Context(), store, member(0, 2)); err != nil {
			t.Errorf("a second Drain: %v", err)
		}
	})
}

// Two late requests without callers reach two members when all are idle. Each must be refused.
func TestDrainRefusesTwoLateRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, hold := kvstore.NewHashStore(), make(chan struct{})
		slow := &hooked{Store: store}
		slow.around = func(_ context.Context, op, key string, carryOut func() error) error {
			if op == "set" && key == doneKey {
				<-hold
			}
			return carryOut()
		}
		works := []*Work{NewWork(), NewWork(), NewWork()}
		ended := make(chan error, 3)
		for rank, w := range works {
			go func() { ended <- w.Drain(t.Context(), slow, member(rank, 3)) }()
			synctest.Wait()
		}
		for _, w := range works {
			if err := w.Begin(t.Context()); !errors.Is(err, ErrShutdown) {
				t.Errorf("late work: %v", err)
			}
		}
		close(hold)
		for range works {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestDrainMissing(t *testing.T) {
	tests := map[string]struct {
		comes bool // rank 1 comes, but its work does not end
		want  *MissingError
	}{
		"rank has not come":     {false, &MissingError{Step: StepDrain, Ranks: []int{1}}},
		"work has not finished": {true, &MissingError{Step: StepIdle, Ranks: []int{1}, Names: []string{"w1"}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				store, works := kvstore.NewHashStore(), []*Work{NewWork(), NewWork(), NewWork()}
				if err := works[1].BeginRoot(); err != nil {
					t.Fatal(err)
				}
				var wg sync.WaitGroup
				for rank, w := range works {
					if rank == 1 && !tc.comes {
						continue
					}
					wg.Go(func() {
						err := w.Drain(ctx, store, member(rank, 3))
						var missing *MissingError
						if !errors.As(err, &missing) || missing.Step != tc.want.Step ||
							!slices.Equal(missing.Ranks, tc.want.Ranks) || !slices.Equal(missing.Names, tc.want.Names) {
							t.Errorf("rank %d: %v", rank, err)
						}
						if !errors.Is(err, kvstore.ErrTimeout) {
							t.Errorf("rank %d: %v is no timeout", rank, err)
						}
					})
				}
				wg.Wait()
			})
		})
	}
}

// If the member that sees the full count dies before it can notify the others, they find out when their time is over.
func TestDrainNotifierDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		store := kvstore.NewHashStore()
		failing := &hooked{Store: store}
		failing.around = func(_ context.Context, op, key string, carryOut func() error) error {
			if op == "set" && key == doneKey {
				return kvstore.ErrConnection
			}
			return carryOut()
		}
		var wg sync.WaitGroup
		for rank, store := range []kvstore.Store{store, store, failing} {
			wg.Go(func() {
				if err := NewWork().Drain(ctx, store, member(rank, 3)); err != nil {
					t.Errorf("rank %d: %v", rank, err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
	})
}

func BenchmarkWork(b *testing.B) {
	b.Run("alone", func(b *testing.B) {
		w := NewWork()
		for b.Loop() {
			_ = w.Begin(b.Context())
			w.End()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		w, ctx := NewWork(), b.Context()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_ = w.Begin(ctx)
				w.End()
			}
		})
	})
}
