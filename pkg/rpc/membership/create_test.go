package membership

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// The result of the CompareSet stands although the wake fails, and the wake is retried.
func TestCreateWakesAgain(t *testing.T) {
	for _, failures := range []int{0, 1, 3, wakeTries} {
		synctest.Test(t, func(t *testing.T) {
			sets := 0
			store := &hooked{Store: kvstore.NewHashStore()}
			store.around = func(_ context.Context, op, _ string, carryOut func() error) error {
				if op == "set" {
					if sets++; sets <= failures {
						return kvstore.ErrConnection
					}
				}
				return carryOut()
			}
			if got, err := create(t.Context(), store, "k", []byte("v")); err != nil || string(got) != "v" {
				t.Errorf("%d failures: %q, %v", failures, got, err)
			}
			if want := min(failures+1, wakeTries); sets != want {
				t.Errorf("%d failures: set %d times, want %d", failures, sets, want)
			}
		})
	}
}

// A committed entry is no failure although nobody could be woken.
func TestLogCommitWithoutWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hooked{Store: kvstore.NewHashStore()}
		store.around = func(_ context.Context, op, _ string, carryOut func() error) error {
			if op == "set" {
				return kvstore.ErrConnection
			}
			return carryOut()
		}
		r, err := appendJoin(t.Context(), changeLog{store}, snapshot{}, 1)
		if err != nil || !r.has(1) {
			t.Errorf("version %d, %v", r.Version, err)
		}
	})
}

// A writer is paused after its CompareSet until its entry is deleted. Whether the writer came first or second, the
// entry does not stay in the store.
func TestLogWriterPausedInCommit(t *testing.T) {
	for _, second := range []bool{false, true} {
		inner := kvstore.NewHashStore()
		commitFirst := func() { appendJoins(t, changeLog{inner}, 1, 1) }
		overtake := func() { pad(t, changeLog{inner}, snapshot{}, 2*keptEntries) }
		entry := ""
		store := &hooked{Store: inner}
		store.around = func(_ context.Context, op, key string, carryOut func() error) error {
			mine := op == "compare" && key == entryKey(1) && entry == ""
			if mine && second {
				commitFirst()
			}
			err := carryOut()
			if mine {
				entry = key
				overtake()
			}
			return err
		}
		r, err := appendJoin(t.Context(), changeLog{store}, snapshot{}, 2)
		if err != nil || !r.has(2) || entry == "" {
			t.Errorf("second %v: %+v, %v", second, r, err)
		}
		if there, _ := inner.Check(t.Context(), entryKey(1)); there {
			t.Errorf("second %v: the entry is back", second)
		}
		if n, _ := inner.NumKeys(t.Context()); n > keptEntries+3 {
			t.Errorf("second %v: %d keys", second, n)
		}
	}
}

// A claim whose reply was lost still wakes the members that wait for it.
func TestClaimWakes(t *testing.T) {
	self, woken := member(1, 2), false
	store := &hooked{Store: kvstore.NewHashStore()}
	store.around = func(_ context.Context, op, key string, carryOut func() error) error {
		err := carryOut()
		switch {
		case key == rankKey+"1" && op == "compare":
			return kvstore.ErrConnection
		case key == rankKey+"1" && op == "set":
			woken = true
		}
		return err
	}
	own := claim{store: store, self: self, record: encode(self)}
	if err := own.acquire(t.Context()); err != nil || !woken {
		t.Errorf("woken %v, %v", woken, err)
	}
}
