package kvstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const members = 20
		s := NewHashStore()
		var wg sync.WaitGroup
		var mu sync.Mutex
		passed := 0
		arrive := func() {
			wg.Go(func() {
				if err := Barrier(t.Context(), s, members, "exit"); err != nil {
					t.Error(err)
				}
				mu.Lock()
				passed++
				mu.Unlock()
			})
		}
		for range members - 1 {
			arrive()
		}
		synctest.Wait()
		if passed != 0 {
			t.Fatalf("%d members passed before the last one came", passed)
		}
		if arrived, _ := s.Get(t.Context(), "exit/num_members"); string(arrived) != "19" {
			t.Errorf("exit/num_members = %q, want 19", arrived)
		}
		arrive()
		wg.Wait()
		if ok, _ := s.Check(t.Context(), "exit/last_member"); !ok || passed != members {
			t.Errorf("%d passed, exit/last_member set: %v", passed, ok)
		}
	})
}

func TestBarrierTimesOut(t *testing.T) {
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	err := Barrier(ctx, NewHashStore(), 2, "exit")
	if !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), `"exit/last_member"`) {
		t.Errorf("Barrier = %v, want a timeout that names its key", err)
	}
	if err := Barrier(t.Context(), NewHashStore(), 0, "exit"); err == nil {
		t.Error("a barrier of no members must be refused")
	}
}
