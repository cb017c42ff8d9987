package filestore

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// compareFile checks the content of the file. A nil want means that the file must not exist.
func compareFile(t fataler, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if want == nil && errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil || !bytes.Equal(got, want) {
		same := 0
		for same < min(len(got), len(want)) && got[same] == want[same] {
			same++
		}
		t.Fatalf("file differs from byte %d on: it has %d bytes, want %d; %v\n%.300q\nwant\n%.300q",
			same, len(got), len(want), err, got[same:], want[same:])
	}
}

// TestFileBytes compares the file with one that torch 2.14.1 wrote.
func TestFileBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	ctx := t.Context()
	s := openFile(t, path, 2)
	err := s.Set(ctx, "k", []byte("v1"))
	if sum, addErr := s.Add(ctx, "n", 5); sum != 5 || addErr != nil {
		t.Errorf("Add = %d, %v", sum, addErr)
	}
	if ok, delErr := s.Delete(ctx, "k"); !ok || delErr != nil {
		t.Errorf("Delete = %v, %v", ok, delErr)
	}
	if err := errors.Join(err, s.Append(ctx, "a", []byte("xy"))); err != nil {
		t.Fatal(err)
	}
	compareFile(t, path, specBytes(t))
	if ok, err := s.Delete(ctx, "absent"); ok || err != nil {
		t.Errorf("Delete of an absent key = %v, %v", ok, err)
	}
	compareFile(t, path, append(specBytes(t), rawRecords("-/absent", "")...))
	if s.Path() != path {
		t.Errorf("Path = %q, want %q", s.Path(), path)
	}
	keys, err := s.ListKeys(ctx)
	if diff := cmp.Diff([]string{"a", "n", "refcount/"}, keys); diff != "" || err != nil {
		t.Errorf("ListKeys: %v (-want +got):\n%s", err, diff)
	}
}

func TestLastWorkerRemovesFile(t *testing.T) {
	for _, tt := range []struct {
		name    string
		workers int
		opened  int // opened and closed one after another
		removed bool
	}{
		{name: "not fixed", workers: 0, opened: 2},
		{name: "negative", workers: -1, opened: 2},
		{name: "one", workers: 1, opened: 1, removed: true},
		{name: "all of two", workers: 2, opened: 2, removed: true},
		{name: "one of two", workers: 2, opened: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store")
			for range tt.opened {
				s := openFile(t, path, tt.workers)
				for range 2 {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) != tt.removed {
				t.Errorf("removed: want %v, stat says %v", tt.removed, err)
			}
		})
	}
}

// observedContext is a context that reports when a call begins to wait for its end.
type observedContext struct {
	context.Context //nolint:containedctx // it is one
	once            sync.Once
	waited          chan struct{}
}

func (c *observedContext) Done() <-chan struct{} {
	c.once.Do(func() { close(c.waited) })
	return c.Context.Done()
}

// TestOpenWhileRemoved removes the file between opening and locking it.
func TestOpenWhileRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	last := openFile(t, path, 1)
	if ok, err := exclusiveLock.try(last.file); !ok || err != nil {
		t.Fatal(ok, err)
	}
	ctx := &observedContext{Context: t.Context(), waited: make(chan struct{})}
	opened := make(chan error)
	go func() {
		s, err := Open(ctx, path, Options{})
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	<-ctx.waited
	if err := last.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	compareFile(t, path, rawRecords("refcount/", "1", "cleanup/", "1", "refcount/", "0"))
}

// TestOpenAndRemoveConcurrently opens the file repeatedly while other stores remove it.
func TestOpenAndRemoveConcurrently(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				s, err := Open(t.Context(), path, Options{Workers: 1})
				if err != nil {
					t.Error(err)
					return
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is left: %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage")
	fifo := filepath.Join(dir, "fifo")
	script := []byte("#!/bin/sh\nexit 0\n")
	if err := errors.Join(os.WriteFile(garbage, script, 0o600), syscall.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path string
		is   error
		says string
	}{
		{path: "", says: "the path is empty"},
		{path: dir, is: syscall.EISDIR},
		{path: filepath.Join(dir, "no", "folder"), is: fs.ErrNotExist},
		{path: garbage, is: kvstore.ErrProtocol, says: "garbage\": store protocol error: the record at byte 0 cannot be read"},
		{path: fifo, is: kvstore.ErrProtocol, says: "not a regular file"},
	} {
		s, err := Open(t.Context(), tt.path, Options{})
		if err == nil {
			s.Close()
		}
		if err == nil || tt.is != nil && !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("open %q: error %v, want %v, %q", tt.path, err, tt.is, tt.says)
		}
	}
	compareFile(t, garbage, script)
}

// forEachOp performs each operation.
func forEachOp(ctx context.Context, s *Store, check func(name string, err error)) {
	_, err := s.Get(ctx, "k")
	check("Get", err)
	_, err = s.MultiGet(ctx, "k")
	check("MultiGet", err)
	check("Wait", s.Wait(ctx, "k"))
	_, err = s.Check(ctx, "k")
	check("Check", err)
	_, err = s.NumKeys(ctx)
	check("NumKeys", err)
	_, err = s.ListKeys(ctx)
	check("ListKeys", err)
	check("Set", s.Set(ctx, "k", nil))
	_, err = s.Add(ctx, "k", 1)
	check("Add", err)
	_, err = s.CompareSet(ctx, "k", nil, nil)
	check("CompareSet", err)
	_, err = s.Delete(ctx, "k")
	check("Delete", err)
	check("Append", s.Append(ctx, "k", nil))
	check("MultiSet", s.MultiSet(ctx, kvstore.Pair{Key: "k"}))
}

// TestFileDamaged damages the file while the store is open.
func TestFileDamaged(t *testing.T) {
	for _, tt := range []struct {
		name   string
		damage func(path string) error
		want   error
		says   string
	}{
		{"removed", os.Remove, kvstore.ErrConnection, "was removed or replaced"},
		{"replaced", func(path string) error {
			return errors.Join(os.WriteFile(path+".new", specBytes(t), 0o600), os.Rename(path+".new", path))
		}, kvstore.ErrConnection, "was removed or replaced"},
		{"truncated", func(path string) error {
			return os.Truncate(path, 3)
		}, kvstore.ErrProtocol, "was truncated while in use: it has 3 bytes, and had at least 29"},
		{"torn", func(path string) error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteString("\x02\x00\x00\x00/")
			return err
		}, kvstore.ErrProtocol, "the record at byte 29 cannot be read: its key takes 2 bytes, the file has 1 more"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store")
			s := openFile(t, path, 0)
			if err := s.Set(t.Context(), "k", []byte("v")); err != nil {
				t.Fatal(err)
			}
			if err := tt.damage(path); err != nil {
				t.Fatal(err)
			}
			damaged, _ := os.ReadFile(path)
			forEachOp(t.Context(), s, func(name string, err error) {
				if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), path) {
					t.Errorf("%s: error %v, want %v, %q", name, err, tt.want, tt.says)
				}
			})
			removed := errors.Is(tt.want, kvstore.ErrConnection) // there is no file to unregister from
			if err := s.Close(); (err == nil) != removed || !removed && !errors.Is(err, tt.want) {
				t.Errorf("Close = %v", err)
			}
			compareFile(t, path, damaged)
		})
	}
}

// TestSizeLimit fills a store up to its limit.
func TestSizeLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	ctx := t.Context()
	s := openFile(t, path, 0)
	s.log.limit = 100
	if err := s.Set(ctx, "k", make([]byte, 80)); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(path)
	for name, err := range map[string]error{
		"value":   s.Set(ctx, "k", make([]byte, 101)),
		"sum":     s.Set(ctx, "l", make([]byte, 20)),
		"several": s.MultiSet(ctx, kvstore.Pair{Key: "l", Value: make([]byte, 5)}, kvstore.Pair{Key: "m", Value: make([]byte, 5)}),
		"append":  s.Append(ctx, "k", make([]byte, 20)),
	} {
		if !errors.Is(err, kvstore.ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	compareFile(t, path, before)
	if _, err := s.Delete(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	if err := s.Set(ctx, "l", make([]byte, 80)); err != nil {
		t.Errorf("no room after Delete: %v", err)
	}
}

func TestClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	s := openFile(t, path, 0)
	waiting := make(chan error)
	go func() { waiting <- s.Wait(t.Context(), "never") }()
	awaitWait(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; !errors.Is(err, kvstore.ErrClosed) || !strings.Contains(err.Error(), `wait for key "never"`) {
		t.Errorf("Wait in progress = %v", err)
	}
	before, _ := os.ReadFile(path)
	forEachOp(t.Context(), s, func(name string, err error) {
		if !errors.Is(err, kvstore.ErrClosed) {
			t.Errorf("%s = %v", name, err)
		}
	})
	compareFile(t, path, before)
}
