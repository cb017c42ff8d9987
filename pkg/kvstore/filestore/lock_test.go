package filestore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// TestLockedFile holds the file's lock while a store needs it.
func TestLockedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	s := openFile(t, path, 0)
	holder, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if ok, err := exclusiveLock.try(holder); !ok || err != nil {
		t.Fatal(ok, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	forEachOp(ctx, s, func(name string, err error) {
		if !errors.Is(err, kvstore.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "the file's lock") {
			t.Errorf("%s = %v", name, err)
		}
	})
	because := errors.New("a worker died")
	dead, die := context.WithCancelCause(t.Context())
	die(because)
	if err := s.Set(dead, "k", nil); !errors.Is(err, because) || errors.Is(err, kvstore.ErrTimeout) {
		t.Errorf("Set = %v, want one that is %v", err, because)
	}
	if _, err := Open(dead, path, Options{}); !errors.Is(err, because) {
		t.Errorf("open = %v", err)
	}
	done := make(chan error)
	go func() { done <- s.Set(t.Context(), "k", nil) }()
	if err := unlock(holder); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("Set after the unlock: %v", err)
	}
}

// TestCloseTimeout closes a store whose file stays locked.
func TestCloseTimeout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	synctest.Test(t, func(t *testing.T) {
		s := openFile(t, path, 1)
		holder, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Close()
		if ok, err := sharedLock.try(holder); !ok || err != nil {
			t.Fatal(ok, err)
		}
		start := time.Now()
		err = s.Close()
		if took := time.Since(start); !errors.Is(err, kvstore.ErrTimeout) || took.Round(time.Second) != closeTimeout {
			t.Errorf("Close = %v after %v", err, took)
		}
		if again := s.Close(); !errors.Is(again, kvstore.ErrTimeout) {
			t.Errorf("second Close = %v", again)
		}
	})
	compareFile(t, path, rawRecords("refcount/", "1"))
}
