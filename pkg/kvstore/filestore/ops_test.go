package filestore

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// awaitWait returns when a Wait is in progress.
func awaitWait(t *testing.T, s *Store) {
	t.Helper()
	for attempt := range 1000 {
		s.mu.Lock()
		n := len(s.log.waits)
		s.mu.Unlock()
		if n > 0 {
			return
		}
		if err := waitForRetry(t.Context(), nil, attempt); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("no wait begins")
}

// TestWaitMissesNothing sets and deletes a key between two reads of the file.
func TestWaitMissesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	ctx := t.Context()
	s, other := openFile(t, path, 0), openFile(t, path, 0)
	waiting := make(chan error)
	go func() { waiting <- s.Wait(ctx, "a", "b") }()
	awaitWait(t, s)
	if err := other.MultiSet(ctx, kvstore.Pair{Key: "a", Value: nil}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Delete(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := other.Set(ctx, "b", nil); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err != nil {
		t.Error(err)
	}
	if ok, err := s.Check(ctx, "a", "b"); ok || err != nil {
		t.Errorf("Check = %v, %v", ok, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.log.waits) != 0 {
		t.Error("the wait is left")
	}
}

func TestWaitEndsWithContext(t *testing.T) {
	s := openFile(t, filepath.Join(t.TempDir(), "store"), 0)
	if err := s.Set(t.Context(), "here", nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for name, wait := range map[string]func(keys ...string) error{
		"Wait":     func(keys ...string) error { return s.Wait(ctx, keys...) },
		"MultiGet": func(keys ...string) error { _, err := s.MultiGet(ctx, keys...); return err },
	} {
		err := wait("b", "here", "a")
		if !errors.Is(err, kvstore.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), `wait for key "a", "b": timed out`) {
			t.Errorf("%s = %v", name, err)
		}
		if err := wait("here"); err != nil {
			t.Errorf("%s of a present key: %v", name, err)
		}
	}
}
