package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// Scope is the lifetime of a store: a test, or one case of a property.
type Scope interface {
	Cleanup(f func())
	Fatal(args ...any)
}

// testTimeout limits every call that must succeed.
const testTimeout = time.Minute

// Opener creates a new, empty store that ends with t, and returns Clients handles on it. If a store has a single
// handle, Opener returns it that many times.
type Opener func(t Scope) []kvstore.Store

// Conform checks that a store does what kvstore.Store says. Every implementation calls it. sequences leaves out the
// exceptions that the implementation documents.
func Conform(t *testing.T, sequences *rapid.Generator[[]Call], open Opener) {
	t.Helper()
	t.Run("calls", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			planned, want := Plan(OwnStores, sequences.Draw(t, "calls"))
			got, err := Play(t.Context(), open(t), planned)
			if err != nil {
				t.Fatal(err)
			}
			if at := FirstDifference(want, got); at >= 0 {
				t.Fatal(Describe(planned, at, "the model", want[at], "the store", got[at]))
			}
		})
	})
	t.Run("what releases a Get", func(t *testing.T) { conformRelease(t, open(t)) })
	t.Run("Wait counts each key", func(t *testing.T) { conformWait(t, open(t)) })
	t.Run("contexts", func(t *testing.T) { conformContexts(t, open(t)) })
	t.Run("values are the caller's", func(t *testing.T) { conformOwnership(t, open(t)) })
}

// FirstDifference returns the index of the first outcome that differs, or -1.
func FirstDifference(want, got []Outcome) int {
	for i := range want {
		if !same(want[i], got[i]) {
			return i
		}
	}
	return -1
}

// Describe shows a sequence up to the call whose outcomes differ.
func Describe(calls []Call, at int, one string, its Outcome, other string, others Outcome) string {
	var b strings.Builder
	b.WriteByte('\n')
	for _, c := range calls[:at+1] {
		fmt.Fprintln(&b, c)
	}
	for _, c := range calls[at+1:] {
		fmt.Fprintln(&b, "(then)", c)
	}
	fmt.Fprintf(&b, "call %d is %s:\n%s gives %s\n%s gives %s", at+1, calls[at], one, its, other, others)
	return b.String()
}

// conformRelease checks that each operation that stores something releases an earlier Get.
func conformRelease(t *testing.T, stores []kvstore.Store) {
	t.Helper()
	for name, store := range map[string]func(ctx context.Context, s kvstore.Store, key string) error{
		"Set": func(ctx context.Context, s kvstore.Store, key string) error { return s.Set(ctx, key, []byte("5")) },
		"Add": func(ctx context.Context, s kvstore.Store, key string) error { _, err := s.Add(ctx, key, 5); return err },
		"CompareSet": func(ctx context.Context, s kvstore.Store, key string) error {
			_, err := s.CompareSet(ctx, key, nil, []byte("5"))
			return err
		},
		"Append": func(ctx context.Context, s kvstore.Store, key string) error { return s.Append(ctx, key, []byte("5")) },
		"MultiSet": func(ctx context.Context, s kvstore.Store, key string) error {
			return s.MultiSet(ctx, kvstore.Pair{Key: key, Value: []byte("5")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			got := make(chan string, 1)
			go func() {
				value, err := stores[1].Get(ctx, name)
				got <- fmt.Sprintf("%s %v", value, err)
			}()
			// This stores nothing, so it must release nothing.
			if held, err := stores[2].CompareSet(ctx, name, []byte("no"), []byte("1")); string(held) != "no" || err != nil {
				t.Errorf("CompareSet = %q, %v", held, err)
			}
			if err := store(ctx, stores[0], name); err != nil {
				t.Error(err)
			}
			if text := <-got; text != "5 <nil>" {
				t.Errorf("Get = %s", text)
			}
		})
	}
}

// conformWait sets and deletes a and b in turn, so that they are never present together, until a Wait for both ends.
func conformWait(t *testing.T, stores []kvstore.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	waited := make(chan error, 1)
	go func() { waited <- stores[1].Wait(ctx, "a", "b") }()
	for round := 0; ; round++ {
		select {
		case err := <-waited:
			if err != nil || ctx.Err() != nil {
				t.Errorf("after %d rounds, and %v: %v", round, testTimeout, err)
			}
			return
		default:
		}
		for _, key := range []string{"a", "b"} {
			if err := stores[0].Set(ctx, key, []byte("v")); err != nil && ctx.Err() == nil {
				t.Fatal(err)
			}
			if _, err := stores[0].Delete(ctx, key); err != nil && ctx.Err() == nil {
				t.Fatal(err)
			}
		}
	}
}

// conformContexts ends blocking calls by their contexts and checks that the store still works.
func conformContexts(t *testing.T, stores []kvstore.Store) {
	t.Helper()
	because := errors.New("a worker died")
	for name, call := range map[string]func(ctx context.Context) error{
		"Get":      func(ctx context.Context) error { _, err := stores[0].Get(ctx, "absent"); return err },
		"Wait":     func(ctx context.Context) error { return stores[0].Wait(ctx, "here", "absent") },
		"MultiGet": func(ctx context.Context) error { _, err := stores[0].MultiGet(ctx, "here", "absent"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			if err := stores[1].Set(t.Context(), "here", []byte("v")); err != nil {
				t.Fatal(err)
			}
			soon, cancel := context.WithTimeout(t.Context(), ShortWait*time.Millisecond)
			defer cancel()
			if err := call(soon); !errors.Is(err, kvstore.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after the deadline: %v", err)
			}
			ended, end := context.WithCancelCause(t.Context())
			result := make(chan error, 1)
			go func() { result <- call(ended) }()
			end(because)
			if err := <-result; !errors.Is(err, because) || errors.Is(err, kvstore.ErrTimeout) {
				t.Errorf("after the cancellation: %v", err)
			}
			if value, err := stores[0].Get(t.Context(), "here"); string(value) != "v" || err != nil {
				t.Errorf("Get = %q, %v", value, err)
			}
		})
	}
}

// conformOwnership modifies the values that it passed to a store and received from it.
func conformOwnership(t *testing.T, stores []kvstore.Store) {
	t.Helper()
	ctx, s := t.Context(), stores[0]
	mine := []byte("value")
	stored, err := s.CompareSet(ctx, "compared", nil, mine)
	if err != nil {
		t.Fatal(err)
	}
	stored[0] = 'X'
	err = errors.Join(err, s.Set(ctx, "set", mine), s.Append(ctx, "appended", mine),
		s.MultiSet(ctx, kvstore.Pair{Key: "multi", Value: mine}))
	if err != nil {
		t.Fatal(err)
	}
	mine[0] = 'X'
	keys := []string{"set", "compared", "appended", "multi"}
	for range 2 {
		got, err := s.MultiGet(ctx, keys...)
		if err != nil {
			t.Fatal(err)
		}
		want := [][]byte{[]byte("value"), []byte("value"), []byte("value"), []byte("value")}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("values of %q (-want +got):\n%s", keys, diff)
		}
		for _, value := range got {
			value[0] = 'Y'
			_ = append(value, "tail"...)
		}
		for _, key := range keys {
			one, err := s.Get(ctx, key)
			if string(one) != "value" || err != nil {
				t.Fatalf("Get(%q) = %q, %v", key, one, err)
			}
			one[0] = 'Z'
			_ = append(one, "tail"...)
		}
		held, err := s.CompareSet(ctx, "set", []byte("no"), nil)
		if string(held) != "value" || err != nil {
			t.Fatalf("CompareSet = %q, %v", held, err)
		}
		held[0] = 'W'
	}
}
