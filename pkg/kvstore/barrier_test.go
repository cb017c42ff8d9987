package kvstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const members = 20
		s := NewHashStore()
		var wg sync.WaitGroup
		var passed atomic.Int32
		arrive := func() {
			wg.Go(func() {
				if err := Barrier(t.Context(), s, BarrierOptions{WorldSize: members, Prefix: "exit"}); err != nil {
					t.Error(err)
				}
				passed.Add(1)
			})
		}
		for range members - 1 {
			arrive()
		}
		synctest.Wait()
		if passed.Load() != 0 {
			t.Fatalf("%d members passed before the last one came", passed.Load())
		}
		if arrived, _ := s.Get(t.Context(), "exit/num_members"); string(arrived) != "19" {
			t.Errorf("exit/num_members = %q, want 19", arrived)
		}
		arrive()
		wg.Wait()
		last, err := s.MultiGet(t.Context(), "exit/last_member")
		if err != nil || passed.Load() != members || string(last[0]) != "<val_ignored>" {
			t.Errorf("%d passed, exit/last_member holds %q", passed.Load(), last)
		}
		arrive() // a prefix serves once: a later member passes at once
		wg.Wait()
	})
}

// torch changes the timeout of the store during the call. Here the caller's context and the store stay unchanged: the
// next call has the caller's own deadline.
func TestTimeoutIsPerCall(t *testing.T) {
	trace := &Trace{Rank: 1, Decode: hostOf}
	for name, fails := range map[string]func(context.Context, Store) error{
		"barrier": func(ctx context.Context, s Store) error {
			return Barrier(ctx, s, BarrierOptions{WorldSize: 2, Prefix: "p", Timeout: time.Second})
		},
		"traced barrier": func(ctx context.Context, s Store) error {
			return Barrier(ctx, s, BarrierOptions{WorldSize: 2, Prefix: "p", Timeout: time.Second, Trace: trace})
		},
		"synchronize": func(ctx context.Context, s Store) error {
			_, err := Synchronize(ctx, s, nil, 1, 2, "p", time.Second)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				s, start := NewHashStore(), time.Now()
				if err := fails(ctx, s); !errors.Is(err, ErrTimeout) {
					t.Fatalf("%v, want a timeout", err)
				}
				if took := time.Since(start); ctx.Err() != nil || took > 2*time.Second {
					t.Errorf("after %v the caller's context says %v", took, ctx.Err())
				}
				if err := s.Wait(ctx, "never"); !errors.Is(err, ErrTimeout) || time.Since(start) != time.Minute {
					t.Errorf("Wait after that ended after %v with %v, want the caller's own deadline", time.Since(start), err)
				}
			})
		})
	}
}

// A call is limited by its own timeout, which is 300 s by default as in torch, or by an earlier end of its context.
func TestTimeouts(t *testing.T) {
	cause := errors.New("stopped")
	for _, tc := range []struct {
		name             string
		timeout, ctxEnds time.Duration
		canceled         bool
		want             time.Duration
	}{
		{name: "by default", want: 300 * time.Second},
		{name: "own", timeout: 7 * time.Second, want: 7 * time.Second},
		{name: "longer than the default", timeout: time.Hour, want: time.Hour},
		{name: "the context's is earlier", timeout: 7 * time.Second, ctxEnds: time.Second, want: time.Second},
		{name: "the context's is later", timeout: 7 * time.Second, ctxEnds: time.Minute, want: 7 * time.Second},
		{name: "canceled", ctxEnds: time.Second, canceled: true, want: time.Second},
	} {
		for call, run := range map[string]func(context.Context, Store) error{
			"barrier": func(ctx context.Context, s Store) error {
				return Barrier(ctx, s, BarrierOptions{WorldSize: 2, Prefix: "p", Timeout: tc.timeout})
			},
			"synchronize": func(ctx context.Context, s Store) error {
				_, err := Synchronize(ctx, s, nil, 0, 2, "p", tc.timeout)
				return err
			},
		} {
			t.Run(call+" "+tc.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					if tc.canceled {
						defer time.AfterFunc(tc.ctxEnds, func() { cancel(cause) }).Stop()
					} else if tc.ctxEnds > 0 {
						var stop context.CancelFunc
						ctx, stop = context.WithTimeout(ctx, tc.ctxEnds)
						defer stop()
					}
					start := time.Now()
					err := run(ctx, NewHashStore())
					ok := errors.Is(err, cause) == tc.canceled && errors.Is(err, ErrTimeout) != tc.canceled
					if !ok || !strings.Contains(err.Error(), `key "p`) {
						t.Errorf("error %v", err)
					}
					if took := time.Since(start); took != tc.want {
						t.Errorf("took %v, want %v", took, tc.want)
					}
				})
			})
		}
	}
}

// A rejected call leaves nothing in the store.
func TestHelpersReject(t *testing.T) {
	s := NewHashStore()
	trace := func(rank int) *Trace { return &Trace{Rank: rank, Decode: hostOf} }
	barrier := func(o BarrierOptions) func(context.Context) error {
		return func(ctx context.Context) error { return Barrier(ctx, s, o) }
	}
	for want, call := range map[string]func(context.Context) error{
		`barrier "p": world size 0: must be at least 1`: barrier(BarrierOptions{Prefix: "p"}),
		`barrier "p": rank 1: must be at least 0 and below the world size, 1`: barrier(
			BarrierOptions{WorldSize: 1, Prefix: "p", Trace: &Trace{Rank: 1}}),
		`barrier "p": rank -1: must be at least 0 and below the world size, 2`: barrier(
			BarrierOptions{WorldSize: 2, Prefix: "p", Trace: trace(-1)}),
		`barrier "p": rank 2: must be at least 0 and below the world size, 2`: barrier(
			BarrierOptions{WorldSize: 2, Prefix: "p", Trace: trace(2)}),
		`get all of "p": world size -1: must be at least 1`: func(ctx context.Context) error {
			_, err := GetAll(ctx, s, 0, -1, "p")
			return err
		},
		`get all of "p": rank 3: must be at least 0 and below the world size, 3`: func(ctx context.Context) error {
			_, err := GetAll(ctx, s, 3, 3, "p")
			return err
		},
		`synchronize "p": rank -1: must be at least 0 and below the world size, 1`: func(ctx context.Context) error {
			_, err := Synchronize(ctx, s, nil, -1, 1, "p", 0)
			return err
		},
	} {
		if err := call(t.Context()); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if n, _ := s.NumKeys(t.Context()); n != 0 {
		t.Errorf("%d keys were stored by calls that were refused", n)
	}
}
