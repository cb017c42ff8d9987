package kvstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// hostOf returns host names as if each node had two ranks.
func hostOf(rank int) string { return fmt.Sprintf("host%d", rank/2) }

// countingStore counts the store operations of these helpers, and the values that MultiGet reads.
type countingStore struct {
	Store
	messages, values atomic.Int64
}

func (s *countingStore) Set(ctx context.Context, key string, value []byte) error {
	s.messages.Add(1)
	return s.Store.Set(ctx, key, value)
}

func (s *countingStore) Add(ctx context.Context, key string, delta int64) (int64, error) {
	s.messages.Add(1)
	return s.Store.Add(ctx, key, delta)
}

func (s *countingStore) Check(ctx context.Context, keys ...string) (bool, error) {
	s.messages.Add(1)
	return s.Store.Check(ctx, keys...)
}

func (s *countingStore) Wait(ctx context.Context, keys ...string) error {
	s.messages.Add(1)
	return s.Store.Wait(ctx, keys...)
}

func (s *countingStore) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	s.messages.Add(1)
	s.values.Add(int64(len(keys)))
	return s.Store.MultiGet(ctx, keys...)
}

// runBarrier calls a traced barrier on the given ranks, each after its delay, and returns their errors.
func runBarrier(ctx context.Context, s Store, opts BarrierOptions, arrivals map[int]time.Duration) map[int]error {
	var mu sync.Mutex
	errs := map[int]error{}
	var wg sync.WaitGroup
	for rank, delay := range arrivals {
		wg.Go(func() {
			if delay > 0 {
				// Timers that are due at once run in the goroutines that read them. The race detector crashes if two of
				// one bubble do so at the same time (golang/go issue 78156).
				<-time.After(delay)
			}
			own := opts
			own.Trace = &Trace{Rank: rank, Decode: opts.Trace.Decode, Timeout: opts.Trace.Timeout}
			err := Barrier(ctx, s, own)
			mu.Lock()
			defer mu.Unlock()
			errs[rank] = err
		})
	}
	wg.Wait()
	return errs
}

// Rank 0 names the first 16 missing ranks of any world, and the other ranks refer to rank 0. The barrier ends soon
// after the last timeout, with O(N) store operations.
func TestTraceNamesMissingRanks(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		worldSize := rapid.IntRange(2, 60).Draw(rt, "world size")
		wait := time.Duration(rapid.IntRange(1, 20).Draw(rt, "trace timeout")) * time.Second
		// Long enough that the other ranks still wait for the gate when rank 0 has looked.
		timeout := 2*wait + time.Duration(rapid.IntRange(1, 600).Draw(rt, "timeout"))*time.Second
		absence := rapid.IntRange(0, 100).Draw(rt, "absence in percent")
		arrivals := map[int]time.Duration{0: 0}
		var missing []int
		var last time.Duration
		for rank := 1; rank < worldSize; rank++ {
			if rapid.IntRange(1, 100).Draw(rt, "lot") <= absence {
				missing = append(missing, rank)
				continue
			}
			// A rank that arrives much later has not timed out when rank 0 looks for its trace.
			arrivals[rank] = time.Duration(rapid.Int64Range(0, int64(wait)-1).Draw(rt, "arrival in ns"))
			last = max(last, arrivals[rank])
		}
		synctest.Test(t, func(t *testing.T) {
			s, start := &countingStore{Store: NewHashStore()}, time.Now()
			errs := runBarrier(t.Context(), s, BarrierOptions{
				WorldSize: worldSize, Prefix: "p", Timeout: timeout, Trace: &Trace{Decode: hostOf, Timeout: wait},
			}, arrivals)
			if took, most := time.Since(start), last+timeout+wait+maxMissing*time.Millisecond; took > most {
				rt.Errorf("took %v, want at most %v", took, most)
			}
			if got, most := s.messages.Load(), int64(5*worldSize+maxMissing); got > most {
				rt.Errorf("%d members sent %d messages, want at most %d", worldSize, got, most)
			}
			for rank, err := range errs {
				checkTrace(rt, rank, err, worldSize, missing)
			}
		})
	})
}

// checkTrace checks the error that Barrier returned to a rank.
func checkTrace(t *rapid.T, rank int, err error, worldSize int, missing []int) {
	if len(missing) == 0 {
		if err != nil {
			t.Errorf("no rank is missing, but rank %d got: %v", rank, err)
		}
		return
	}
	helperResult, ok := errors.AsType[*MissingRanksError](err)
	if !ok || !errors.Is(err, ErrTimeout) || helperResult.Rank != rank || helperResult.WorldSize != worldSize {
		t.Errorf("rank %d got %v (%+v)", rank, err, helperResult)
		return
	}
	want := missing[:min(len(missing), 16)]
	var names []string
	for _, rank := range want {
		names = append(names, hostOf(rank))
	}
	if rank != 0 {
		want, names = nil, []string{hostOf(0)}
	}
	if diff := cmp.Diff(want, helperResult.Missing); diff != "" {
		t.Errorf("rank %d: missing ranks (-want +got):\n%s", rank, diff)
	}
	if diff := cmp.Diff(slices.Compact(names), helperResult.Names); diff != "" {
		t.Errorf("rank %d: names (-want +got):\n%s", rank, diff)
	}
}

func TestTraceErrorText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			name      string
			worldSize int
			numbers   bool // without a Decode
			arrivals  map[int]time.Duration
			want      map[int]string
		}{
			{
				name: "without a decoder", worldSize: 3, numbers: true, arrivals: map[int]time.Duration{0: 0, 2: 0},
				want: map[int]string{
					0: `barrier "p" of 3 members timed out on rank 0 after 1m: missing ranks [1]`,
					2: `barrier "p" of 3 members timed out on rank 2 after 1m: see rank 0 (0) for the missing ranks`,
				},
			},
			{
				name: "some are missing", worldSize: 6, arrivals: map[int]time.Duration{0: 0, 3: 0},
				want: map[int]string{
					0: `barrier "p" of 6 members timed out on rank 0 after 1m: missing ranks [host0, host1, host2]`,
					3: `barrier "p" of 6 members timed out on rank 3 after 1m: see rank 0 (host0) for the missing ranks`,
				},
			},
			{
				name: "many are missing", worldSize: 40, arrivals: map[int]time.Duration{0: 0},
				want: map[int]string{0: `barrier "p" of 40 members timed out on rank 0 after 1m: ` +
					`missing ranks [host0, host1, host2, host3, host4, host5, host6, host7, host8] and perhaps more`},
			},
			{
				// Rank 0 cannot know that the others expect another number of members.
				name: "no rank is missing any more", worldSize: 1, arrivals: map[int]time.Duration{0: 0},
				want: map[int]string{0: `barrier "p" of 1 members timed out on rank 0 after 1m: ` +
					`no rank is missing now: the last one arrived too late`},
			},
			{
				name: "rank 0 is missing", worldSize: 3, arrivals: map[int]time.Duration{1: 0, 2: 0},
				want: map[int]string{
					1: `barrier "p" of 3 members: wait for key "p/last_member": timed out: context deadline exceeded`,
					2: `barrier "p" of 3 members: wait for key "p/last_member": timed out: context deadline exceeded`,
				},
			},
		} {
			s := NewHashStore()
			if tc.worldSize == 1 { // as after a reset of the counter
				s.Add(t.Context(), "p/num_members", -1)
			}
			trace := &Trace{Decode: hostOf}
			if tc.numbers {
				trace.Decode = nil
			}
			errs := runBarrier(t.Context(), s, BarrierOptions{
				WorldSize: tc.worldSize, Prefix: "p", Timeout: time.Minute, Trace: trace,
			}, tc.arrivals)
			got := map[int]string{}
			for rank, err := range errs {
				got[rank] = fmt.Sprint(err)
				if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s, rank %d: %v is no timeout", tc.name, rank, err)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.name, diff)
			}
		}
	})
}

// The search takes Trace.Timeout, 10 s by default, for the first missing rank and 1 ms for each further one. The other
// ranks wait for the gate as long as they waited at the barrier.
func TestTraceDuration(t *testing.T) {
	for _, tc := range []struct {
		name     string
		trace    time.Duration
		arrivals map[int]time.Duration
		want     time.Duration
	}{
		{name: "by default", arrivals: map[int]time.Duration{0: 0}, want: 70*time.Second + 15*time.Millisecond},
		{name: "own", trace: time.Second, arrivals: map[int]time.Duration{0: 0}, want: 61*time.Second + 15*time.Millisecond},
		{name: "without rank 0", arrivals: map[int]time.Duration{1: 0}, want: 2 * time.Minute},
		{
			name: "another comes 5 s later", arrivals: map[int]time.Duration{0: 0, 1: 5 * time.Second},
			want: 75*time.Second + 15*time.Millisecond,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				runBarrier(t.Context(), NewHashStore(), BarrierOptions{
					WorldSize: 40, Prefix: "p", Timeout: time.Minute, Trace: &Trace{Decode: hostOf, Timeout: tc.trace},
				}, tc.arrivals)
				if took := time.Since(start); took != tc.want {
					t.Errorf("took %v, want %v", took, tc.want)
				}
			})
		})
	}
}

// slowStore is a store that delays the reply to a wait.
type slowStore struct {
	Store
	trip time.Duration
}

func (s *slowStore) Wait(ctx context.Context, keys ...string) error {
	select {
	case <-time.After(s.trip):
		return s.Store.Wait(ctx, keys...)
	case <-ctx.Done():
		return waitError(ctx, keys)
	}
}

// Over a network, a reply may take longer than the millisecond that the search allows. A rank that left its trace is
// not reported all the same.
func TestTraceOverSlowNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{Store: NewHashStore(), trip: 20 * time.Millisecond}
		errs := runBarrier(t.Context(), s, BarrierOptions{WorldSize: 6, Prefix: "p", Trace: &Trace{Decode: hostOf}},
			map[int]time.Duration{0: 0, 1: 0, 3: 0, 5: 0})
		helperResult, _ := errors.AsType[*MissingRanksError](errs[0])
		if helperResult == nil || !slices.Equal(helperResult.Missing, []int{2, 4}) {
			t.Errorf("rank 0 got %v, want ranks 2 and 4 missing", errs[0])
		}
	})
}

// brokenStore fails on one key.
type brokenStore struct {
	Store
	key string
	err error
}

var errBroken = errors.New("the store is broken")

func (s *brokenStore) Set(ctx context.Context, key string, value []byte) error {
	if key == s.key {
		return s.err
	}
	return s.Store.Set(ctx, key, value)
}

func (s *brokenStore) Wait(ctx context.Context, keys ...string) error {
	if slices.Contains(keys, s.key) {
		return s.err
	}
	return s.Store.Wait(ctx, keys...)
}

// A trace that fails keeps the timeout and adds the failure.
func TestTraceFails(t *testing.T) {
	for key, rank := range map[string]int{
		"p0/TRACE": 0, "p1/TRACE": 0, "p/TRACING_GATE": 0, "p2/TRACE": 2, "p/TRACING_GATE ": 2,
	} {
		synctest.Test(t, func(t *testing.T) {
			key := strings.TrimSpace(key)
			err := Barrier(t.Context(), &brokenStore{Store: NewHashStore(), key: key, err: errBroken}, BarrierOptions{
				WorldSize: 3, Prefix: "p", Trace: &Trace{Rank: rank, Decode: hostOf},
			})
			if !errors.Is(err, ErrTimeout) || !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "last_member") {
				t.Errorf("%s on rank %d: %v", key, rank, err)
			}
		})
	}
}

// No trace begins after the caller's context has ended, and one in progress ends with it.
func TestTraceEndsWithItsContext(t *testing.T) {
	for _, tc := range []struct {
		name string
		ends time.Duration
		rank int
		keys int64
	}{
		{name: "before", ends: 30 * time.Second, keys: 1},
		{name: "in the walk", ends: 65 * time.Second, keys: 2},
		{name: "at the gate", ends: 65 * time.Second, rank: 1, keys: 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tc.ends)
				defer cancel()
				s, start := NewHashStore(), time.Now()
				err := Barrier(ctx, s, BarrierOptions{
					WorldSize: 3, Prefix: "p", Timeout: time.Minute, Trace: &Trace{Rank: tc.rank, Decode: hostOf},
				})
				_, helperResult := errors.AsType[*MissingRanksError](err)
				if helperResult || !errors.Is(err, ErrTimeout) || time.Since(start) != tc.ends {
					t.Errorf("after %v: %v", time.Since(start), err)
				}
				if n, _ := s.NumKeys(t.Context()); n != tc.keys {
					t.Errorf("%d keys in the store, want %d", n, tc.keys)
				}
			})
		})
	}
}
