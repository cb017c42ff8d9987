package kvstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestHashStoreWaitNamesWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewHashStore()
		s.Set(t.Context(), "here", nil)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		for name, wait := range map[string]func(keys ...string) error{
			"Wait":     func(keys ...string) error { return s.Wait(ctx, keys...) },
			"MultiGet": func(keys ...string) error { _, err := s.MultiGet(ctx, keys...); return err },
		} {
			err := wait("b", "here", "a")
			if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v is no timeout", name, err)
			}
			if want := `wait for key "a", "b": timed out: context deadline exceeded`; err.Error() != want {
				t.Errorf("%s: error %q, want %q", name, err, want)
			}
		}
		if n := s.space.Awaited(); n != 0 {
			t.Errorf("waits for %d keys are left", n)
		}
	})
}

func TestHashStoreWaitEndsWithItsContext(t *testing.T) {
	s := NewHashStore()
	because := errors.New("a worker died")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(because)
	_, err := s.Get(ctx, "k")
	if !errors.Is(err, because) || errors.Is(err, ErrTimeout) {
		t.Errorf("Get = %v, want one that is %v and no timeout", err, because)
	}
	s.Set(ctx, "k", []byte("v"))
	if v, err := s.Get(ctx, "k"); string(v) != "v" || err != nil {
		t.Errorf("Get of a present key = %q, %v", v, err)
	}
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprintf("key%02d", i))
	}
	if err := s.Wait(ctx, many...); !strings.Contains(err.Error(), `"key15" and 4 more`) {
		t.Errorf("error %q does not cut the list of keys", err)
	}
}

func TestHashStoreBlocksUntilSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s := NewHashStore()
		got := make(chan [][]byte, 1)
		go func() {
			values, err := s.MultiGet(ctx, "a", "b")
			if err != nil {
				t.Error(err)
			}
			got <- values
		}()
		synctest.Wait()
		s.Set(ctx, "a", []byte("1"))
		s.Delete(ctx, "a")
		s.Set(ctx, "b", []byte("2")) // ends Wait, but not MultiGet
		synctest.Wait()
		if len(got) != 0 {
			t.Fatal("MultiGet returned without a value for a")
		}
		s.Add(ctx, "a", 3)
		if values := <-got; string(values[0]) != "3" || string(values[1]) != "2" {
			t.Errorf("MultiGet = %q, want 3 and 2", values)
		}
	})
}

func TestHashStoreConcurrent(t *testing.T) {
	ctx := t.Context()
	s := NewHashStore()
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			key := fmt.Sprint("key", i)
			if err := s.Set(ctx, key, []byte{byte(i)}); err != nil {
				t.Error(err)
			}
			if _, err := s.Add(ctx, "sum", int64(i)); err != nil {
				t.Error(err)
			}
			if got, err := s.Get(ctx, fmt.Sprint("key", (i+1)%50)); len(got) != 1 || err != nil {
				t.Errorf("Get = %v, %v", got, err)
			}
		})
	}
	wg.Wait()
	if n, err := s.NumKeys(ctx); n != 51 || err != nil {
		t.Errorf("NumKeys = %d, %v; want 51", n, err)
	}
	if sum, err := s.Add(ctx, "sum", 0); sum != 49*50/2 || err != nil {
		t.Errorf("sum = %d, %v", sum, err)
	}
	if ok, err := s.Check(ctx, "key0", "key49", "sum"); !ok || err != nil {
		t.Errorf("Check = %v, %v", ok, err)
	}
	if ok, err := s.Delete(ctx, "sum"); !ok || err != nil {
		t.Errorf("Delete = %v, %v", ok, err)
	}
	if ok, err := s.Check(ctx, "key0", "sum"); ok || err != nil {
		t.Errorf("Check after Delete = %v, %v", ok, err)
	}
}
