package membership

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// A wrong worker that comes first fails alone and leaves nothing. The correct workers form the group after it.
func TestFormStaticWrongFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, records := kvstore.NewHashStore(), members(3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wrong := make(chan error)
		go func() {
			_, err := FormStatic(ctx, store, member(0, 4), nil)
			wrong <- err
		}()
		synctest.Wait()
		for _, end := range formAll(t.Context(), sharedStore(store), records, nil) {
			if _, ok := errors.AsType[*WorldSizeError](end.err); !ok {
				t.Errorf("with the wrong worker: %v", end.err)
			}
		}
		missing, ok := errors.AsType[*MissingError](<-wrong)
		if !ok || !cmp.Equal(missing.Ranks, []int{1, 2, 3}) || ctx.Err() == nil {
			t.Errorf("the wrong worker: %v", missing)
		}
		checkFormed(t, formAll(t.Context(), sharedStore(store), records, nil), records)
	})
}

// The same, while each operation of the wrong worker fails.
func TestFormStaticWrongFirstWithFaults(t *testing.T) {
	for n, reached := 0, true; reached; n++ {
		for _, done := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				store, records := kvstore.NewHashStore(), members(3)
				bad := newFaulty(store, fault{at: n, done: done})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := FormStatic(ctx, bad, member(0, 4), nil); err == nil {
					t.Error("no error without other members")
				}
				reached = bad.operations() > n
				const rankClaim, takenBack = 2, 10 // After a failure there, the outcome in the store is unknown.
				if n == rankClaim && !done || n >= takenBack {
					return
				}
				checkFormed(t, formAll(t.Context(), sharedStore(store), records, nil), records)
			})
		}
	}
}

// A group of one that fails before it is counted as ready leaves nothing. If it fails after that, no other worker can
// use the store: each gets an error.
func TestFormStaticAloneFails(t *testing.T) {
	errSick := errors.New("sick")
	for _, counted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			inner := kvstore.NewHashStore()
			store := &hooked{Store: inner}
			store.around = func(_ context.Context, op, key string, carryOut func() error) error {
				if err := carryOut(); err != nil || op != "add" || key != readyKey {
					return err
				}
				return errSick
			}
			warm := func(context.Context, []Record) error {
				if counted {
					return nil
				}
				return errSick
			}
			if _, err := FormStatic(t.Context(), store, member(0, 1), warm); !errors.Is(err, errSick) {
				t.Errorf("counted %v: %v", counted, err)
			}
			after := members(1)
			after[0].Name, after[0].Secure = "other", !counted
			members, err := FormStatic(t.Context(), inner, after[0], nil)
			if counted == (err == nil) {
				t.Errorf("counted %v: the next worker got %v, %v", counted, members, err)
			}
		})
	}
}

// A second worker agrees just before each operation of a first worker that fails. Either the second worker has the
// first worker's terms, and these stay, or it sets its own. No worker with other terms is admitted after that.
func TestWithdrawTermsRace(t *testing.T) {
	withdrawn, keptEntries := 0, 0
	for n, over := 0, false; !over; n++ {
		synctest.Test(t, func(t *testing.T) {
			store, second, other := kvstore.NewHashStore(), member(1, 4), member(2, 3)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var mu sync.Mutex
			count := 0
			agree := func() {
				if err := Agree(t.Context(), store, second); err != nil {
					t.Errorf("operation %d: %v", n, err)
				}
			}
			first := &hooked{Store: store}
			first.around = func(_ context.Context, _, _ string, carryOut func() error) error {
				mu.Lock()
				if count++; count == n+1 {
					agree()
				}
				mu.Unlock()
				return carryOut()
			}
			_, err := FormStatic(ctx, first, member(0, 4), nil)
			if over = count <= n; over {
				return
			}
			if _, ok := errors.AsType[*MissingError](err); !ok {
				t.Errorf("operation %d: %v", n, err)
			}
			refused, ok := errors.AsType[*WorldSizeError](Agree(t.Context(), store, other))
			if !ok {
				t.Errorf("operation %d: a worker with other terms was admitted", n)
			} else if refused.By == second.Name {
				withdrawn++
			} else {
				keptEntries++
			}
			verdict, _ := store.Check(t.Context(), verdictKey)
			if there, _ := store.Check(t.Context(), rankKey+"0"); there && !verdict {
				t.Errorf("operation %d: the second worker waits for a failed one", n)
			}
		})
	}
	if withdrawn == 0 || keptEntries == 0 {
		t.Errorf("%d times the terms were the second's, %d times the first's", withdrawn, keptEntries)
	}
}

// After the first worker of a dynamic group was wrong and failed, another worker can form the group.
func TestDynamicWrongFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memoryStore())
		store := kvstore.NewPrefixStore("rpc/test", g.dial())
		err := newLock(store, 99).with(t.Context(), func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			wrong := g.newHost("a")
			wrong.self.Secure = true
			return wrong.Join(ctx)
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("join: %v", err)
		}
		g.join("b")
		wrong := g.newHost("c")
		wrong.self.Secure = true
		if _, ok := errors.AsType[*SecurityError](wrong.Join(t.Context())); !ok {
			t.Error("a worker with other terms was admitted")
		}
		g.leave(g.live[0])
		if err := Agree(t.Context(), store, wrong.self); err == nil {
			t.Error("the terms of a member that has joined were withdrawn")
		}
	})
}
