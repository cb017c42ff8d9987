package membership

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

const testLockTimeout = 3 * time.Second

func newLock(store kvstore.Store, self uint64) lock {
	return lock{store: store, self: self, timeout: testLockTimeout, releaseTimeout: time.Second}
}

// sleep waits in a synctest bubble.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Many workers hold the lock for random times, some longer than the timeout. Only one holds it at a time.
func TestLockExcludes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvstore.NewHashStore()
		var running sync.WaitGroup
		inside, turns := 0, 0 // guarded by the lock, so the race detector checks it too
		for self := range uint64(8) {
			random := rand.New(rand.NewPCG(1, self))
			running.Go(func() {
				for range 20 {
					sleep(t.Context(), time.Duration(random.Int64N(int64(time.Second))))
					err := newLock(store, self+1).with(t.Context(), func(ctx context.Context) error {
						if inside++; inside != 1 {
							t.Errorf("%d workers hold the lock", inside)
						}
						sleep(ctx, time.Duration(random.Int64N(int64(2*testLockTimeout))))
						inside--
						turns++
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		running.Wait()
		if turns != 160 {
			t.Errorf("%d turns", turns)
		}
		if keys, _ := store.NumKeys(t.Context()); keys > keptReleases+1 {
			t.Errorf("%d keys are left", keys)
		}
	})
}

// The lock of a dead holder is taken after the timeout, and not before.
func TestLockTakenFromDeadHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvstore.NewHashStore()
		if _, err := newLock(store, 1).acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		died := time.Now()
		if _, err := newLock(store, 2).acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(died); took < testLockTimeout || took > 2*testLockTimeout {
			t.Errorf("taken after %v", took)
		}
	})
}

// A holder that renews keeps the lock, and its release wakes the waiter at once.
func TestLockKeptByRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvstore.NewHashStore()
		var released, acquired time.Time
		var running sync.WaitGroup
		err := newLock(store, 1).with(t.Context(), func(ctx context.Context) error {
			running.Go(func() {
				newLock(store, 2).with(ctx, func(context.Context) error {
					acquired = time.Now()
					return nil
				})
			})
			sleep(ctx, 10*testLockTimeout+testLockTimeout/7)
			released = time.Now()
			return nil
		})
		running.Wait()
		if err != nil || !acquired.Equal(released) {
			t.Errorf("acquired %v after the release, %v", acquired.Sub(released), err)
		}
	})
}

// A holder that cannot renew because the store does not respond keeps the lock.
func TestLockKeptDuringStoreOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultStore(kvstore.NewHashStore())
		inside := false
		var running sync.WaitGroup
		newLock(store, 1).with(t.Context(), func(ctx context.Context) error {
			inside = true
			running.Go(func() {
				newLock(store, 2).with(ctx, func(context.Context) error {
					if inside {
						t.Error("the lock was taken from a live holder")
					}
					return nil
				})
			})
			sleep(ctx, testLockTimeout/2)
			store.set(func(int) outcome { return hung })
			sleep(ctx, 3*testLockTimeout)
			store.set(nil)
			sleep(ctx, 3*testLockTimeout)
			inside = false
			return nil
		})
		running.Wait()
	})
}

// A holder that was paused and lost the lock does not release the next holder's lock.
func TestLockLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := kvstore.NewHashStore()
		stopped := newFaultStore(inner)
		err := newLock(stopped, 1).with(t.Context(), func(ctx context.Context) error {
			stopped.set(func(int) outcome { return hung })
			second, err := newLock(inner, 2).acquire(ctx)
			if err != nil {
				t.Fatal(err)
			}
			stopped.set(nil)
			sleep(ctx, testLockTimeout)
			t.Cleanup(func() {
				if now, _ := inner.Get(context.WithoutCancel(ctx), lockKey); string(now) != second.String() {
					t.Errorf("the lock is %q, want %q", now, second)
				}
			})
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// Any operation of a holder fails, carried out or not. The next worker still gets the lock.
func TestLockFaults(t *testing.T) {
	for _, how := range []outcome{failed, unanswered} {
		for n := 1; n <= 8; n++ {
			synctest.Test(t, func(t *testing.T) {
				inner := kvstore.NewHashStore()
				store := newFaultStore(inner)
				store.setAt(n, how)
				err := newLock(store, 1).with(t.Context(), func(ctx context.Context) error {
					sleep(ctx, testLockTimeout)
					return nil
				})
				if err != nil && (n != 1 || !errors.Is(err, kvstore.ErrConnection)) {
					t.Error(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*testLockTimeout)
				defer cancel()
				if err := newLock(inner, 2).with(ctx, func(context.Context) error { return nil }); err != nil {
					t.Errorf("operation %d: %v", n, err)
				}
			})
		}
	}
}

func TestLockOfAnotherProgram(t *testing.T) {
	store := kvstore.NewHashStore()
	store.Set(t.Context(), lockKey, []byte("mine"))
	err := newLock(store, 1).with(t.Context(), func(context.Context) error { return nil })
	if err == nil || !strings.Contains(err.Error(), `holds "mine", which is not a membership lock`) {
		t.Error(err)
	}
}

func TestStaleness(t *testing.T) {
	type read struct {
		value           string
		asked, answered int // seconds
		want            int
	}
	for _, test := range []struct {
		name  string
		reads []read
	}{
		{"unchanged", []read{{"a", 1, 1, 0}, {"a", 2, 2, 1}, {"a", 4, 4, 3}}},
		{"changes", []read{{"a", 1, 1, 0}, {"a", 2, 2, 1}, {"b", 3, 3, 0}, {"b", 4, 4, 1}}},
		{"slow reply", []read{{"a", 1, 1, 0}, {"a", 2, 4, 0}, {"a", 5, 5, 1}}},
		{"paused reader", []read{{"a", 1, 1, 0}, {"a", 4, 4, 0}, {"a", 5, 5, 1}}},
		{"counts from the reply to the next request", []read{{"a", 0, 1, 0}, {"a", 3, 4, 2}}},
	} {
		s := staleness{maxGap: time.Second}
		start := time.Now()
		at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
		for i, r := range test.reads {
			if got := s.observe(r.value, at(r.asked), at(r.answered)); got != time.Duration(r.want)*time.Second {
				t.Errorf("%s, read %d: %v, want %d s", test.name, i, got, r.want)
			}
		}
	}
}
