package rpc

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestFutures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroups(t, newMemoryBackend(), table(t), table(t))[0]
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		future := hang.Go(ctx, g, "worker1", struct{}{})
		short, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		_, err := future.Wait(short)
		if !errors.Is(err, ErrTimeout) ||
			err.Error() != "call of hang on worker1: no answer yet: timed out: context deadline exceeded" {
			t.Errorf("a short wait: %v", err)
		}
		select {
		case <-future.Done():
			t.Error("the call has ended with the wait")
		default:
		}
		cancel(errTest)
		<-future.Done()
		for range 2 {
			if _, err := future.Wait(short); !errors.Is(err, errTest) {
				t.Errorf("Wait: %v", err)
			}
		}
		xs := []float64{1, 2}
		total := sum.Go(t.Context(), g, "worker1", xs)
		xs[0] = 100 // already encoded
		if got, err := total.Wait(t.Context()); got != 3 || err != nil {
			t.Errorf("sum = %v, %v", got, err)
		}
		_, err = NewFunc[any, int]("sum").Go(t.Context(), g, "worker1", make(chan int)).Wait(t.Context())
		if !errors.Is(err, ErrEncoding) {
			t.Errorf("a request that cannot be encoded: %v", err)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if _, err := sum.Go(t.Context(), g, "worker1", xs).Wait(t.Context()); !errors.Is(err, ErrShutdown) {
			t.Errorf("after Close: %v", err)
		}
	})
}
