package kvstore

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Every rank gets the data of all ranks, in rank order, with O(N) store operations and N² values.
func TestSynchronize(t *testing.T) {
	for _, ranks := range []int{1, 2, 15} {
		synctest.Test(t, func(t *testing.T) {
			s := &countingStore{Store: NewHashStore()}
			want := make([]string, ranks)
			for i := range want {
				want[i] = "data of " + strconv.Itoa(i)
			}
			want[ranks/2] = "" // empty data counts too
			var wg sync.WaitGroup
			for rank := range ranks {
				wg.Go(func() {
					<-time.After(time.Duration(ranks-rank) * time.Second) // the last rank comes first
					all, err := Synchronize(t.Context(), s, []byte(want[rank]), rank, ranks, "data/", 0)
					got := make([]string, len(all))
					for i, value := range all {
						got[i] = string(value)
					}
					if diff := cmp.Diff(want, got); diff != "" || err != nil {
						t.Errorf("rank %d: %v, values (-want +got):\n%s", rank, err, diff)
					}
				})
			}
			wg.Wait()
			if got, most := s.messages.Load(), int64(3*ranks+2); got > most {
				t.Errorf("%d ranks sent %d messages, want at most %d", ranks, got, most)
			}
			if got := s.values.Load(); got != int64(ranks*ranks) {
				t.Errorf("%d ranks read %d values", ranks, got)
			}
		})
	}
}

// Rank 0 may host the store, so it leaves last. The other ranks do not wait for each other.
func TestGetAllRankZeroLeavesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ranks = 5
		s := NewHashStore()
		for rank := range ranks {
			s.Set(t.Context(), fmt.Sprintf("p%d", rank), []byte{byte(rank)})
		}
		var left atomic.Int32
		var wg sync.WaitGroup
		enter := func(rank int) {
			wg.Go(func() {
				all, err := GetAll(t.Context(), s, rank, ranks, "p")
				if err != nil || len(all) != ranks || all[4][0] != 4 {
					t.Errorf("rank %d: %v, %v", rank, all, err)
				}
				left.Add(1)
			})
		}
		for rank := range ranks - 1 {
			enter(rank)
		}
		synctest.Wait()
		if left.Load() != ranks-2 {
			t.Fatalf("%d ranks have left, want all that have come but rank 0", left.Load())
		}
		if ok, _ := s.Check(t.Context(), "p/finished/last_member"); ok {
			t.Error("p/finished/last_member is set before the last rank came")
		}
		enter(ranks - 1)
		wg.Wait()
		keys, err := s.MultiGet(t.Context(), "p/finished/num_members", "p/finished/last_member")
		if err != nil || string(keys[0]) != "5" || string(keys[1]) != "<val_ignored>" {
			t.Errorf("p/finished holds %q, %v", keys, err)
		}
	})
}

// The error names the missing data. A rank without all data has not finished, so rank 0 does not leave either.
func TestGetAllTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewHashStore()
		_, err := Synchronize(t.Context(), s, nil, 1, 3, "p", time.Second)
		const want = `get all of "p" from 3 ranks: wait for key "p0", "p2": timed out: context deadline exceeded`
		if err == nil || err.Error() != want || !errors.Is(err, ErrTimeout) {
			t.Errorf("error %v, want %s", err, want)
		}
		if ok, _ := s.Check(t.Context(), "p/finished/num_members"); ok {
			t.Error("a rank without its values has reported that it finished")
		}
		s.MultiSet(t.Context(), Pair{Key: "p0"}, Pair{Key: "p2"})
		_, err = Synchronize(t.Context(), s, nil, 0, 3, "p", time.Second)
		const rankZero = `get all of "p": rank 0 waits for all 3 ranks to finish: ` +
			`wait for key "p/finished/last_member": timed out: context deadline exceeded`
		if err == nil || err.Error() != rankZero || !errors.Is(err, ErrTimeout) {
			t.Errorf("error %v, want %s", err, rankZero)
		}
	})
}

// Rank 0 leaves with the store when the last rank reports that it has finished, perhaps before the store has replied
// to that rank.
func TestGetAllStoreCloses(t *testing.T) {
	for _, tc := range []struct {
		name string
		rank int
		err  error
		ok   bool
	}{
		{name: "the last to finish", rank: 1, err: fmt.Errorf("set: %w", ErrConnection), ok: true},
		{name: "something else breaks", rank: 1, err: errBroken},
		{name: "rank 0 loses the store", rank: 0, err: ErrConnection},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &brokenStore{Store: NewHashStore(), key: "p/finished/last_member", err: tc.err}
			s.MultiSet(t.Context(), Pair{Key: "p0"}, Pair{Key: "p1"}, Pair{Key: "p/finished/num_members", Value: []byte("1")})
			values, err := GetAll(t.Context(), s, tc.rank, 2, "p")
			if tc.ok != (err == nil) || tc.ok != (len(values) == 2) || !tc.ok && !errors.Is(err, tc.err) {
				t.Errorf("%d values, %v", len(values), err)
			}
		})
	}
}
