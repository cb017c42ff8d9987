package membership

import (
	"context"
	"sync"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// fate is what becomes of one operation of a faultStore.
type fate int

const (
	carriedOut fate = iota
	failed          // and was not carried out
	unanswered      // carried out, and then failed
	hung            // until its context or the hanging ends
)

// faultStore is a store whose operations go wrong as decide says.
type faultStore struct {
	inner kvstore.Store

	mu     sync.Mutex
	count  int
	decide func(count int) fate // count from 1; nil: all is well
	resume chan struct{}        // closed at the end of the hanging
}

var _ kvstore.Store = (*faultStore)(nil)

func newFaultStore(inner kvstore.Store) *faultStore {
	return &faultStore{inner: inner, resume: make(chan struct{})}
}

// set makes decide say what becomes of the operations from now on, counted anew, and ends what hangs.
func (s *faultStore) set(decide func(count int) fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count, s.decide = 0, decide
	close(s.resume)
	s.resume = make(chan struct{})
}

func (s *faultStore) operations() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

func (s *faultStore) next() (fate, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	if s.decide == nil {
		return carriedOut, s.resume
	}
	return s.decide(s.count), s.resume
}

func through[T any](ctx context.Context, s *faultStore, do func() (T, error)) (T, error) {
	var none T
	for {
		fate, resume := s.next()
		switch fate {
		case failed:
			return none, kvstore.ErrConnection
		case unanswered:
			do()
			return none, kvstore.ErrConnection
		case hung:
			select {
			case <-ctx.Done():
				return none, context.Cause(ctx)
			case <-resume:
				continue
			}
		}
		return do()
	}
}

func only(do func() error) func() (struct{}, error) {
	return func() (struct{}, error) { return struct{}{}, do() }
}

func (s *faultStore) Set(ctx context.Context, key string, value []byte) error {
	_, err := through(ctx, s, only(func() error { return s.inner.Set(ctx, key, value) }))
	return err
}

func (s *faultStore) Get(ctx context.Context, key string) ([]byte, error) {
	return through(ctx, s, func() ([]byte, error) { return s.inner.Get(ctx, key) })
}

func (s *faultStore) Add(ctx context.Context, key string, delta int64) (int64, error) {
	return through(ctx, s, func() (int64, error) { return s.inner.Add(ctx, key, delta) })
}

func (s *faultStore) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	return through(ctx, s, func() ([]byte, error) { return s.inner.CompareSet(ctx, key, expected, desired) })
}

func (s *faultStore) Check(ctx context.Context, keys ...string) (bool, error) {
	return through(ctx, s, func() (bool, error) { return s.inner.Check(ctx, keys...) })
}

func (s *faultStore) Wait(ctx context.Context, keys ...string) error {
	_, err := through(ctx, s, only(func() error { return s.inner.Wait(ctx, keys...) }))
	return err
}

func (s *faultStore) NumKeys(ctx context.Context) (int64, error) { return s.inner.NumKeys(ctx) }

func (s *faultStore) Delete(ctx context.Context, key string) (bool, error) {
	return through(ctx, s, func() (bool, error) { return s.inner.Delete(ctx, key) })
}

func (s *faultStore) Append(ctx context.Context, key string, value []byte) error {
	_, err := through(ctx, s, only(func() error { return s.inner.Append(ctx, key, value) }))
	return err
}

func (s *faultStore) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	return through(ctx, s, func() ([][]byte, error) { return s.inner.MultiGet(ctx, keys...) })
}

func (s *faultStore) MultiSet(ctx context.Context, pairs ...kvstore.Pair) error {
	_, err := through(ctx, s, only(func() error { return s.inner.MultiSet(ctx, pairs...) }))
	return err
}
