package kvstore

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/elasticrun/elasticrun/pkg/kvstore/internal/keyspace"
)

// HashStore is a Store in the memory of this process. Only Get, Wait and MultiGet can block, so only they use their
// context.
type HashStore struct {
	mu    sync.Mutex
	space *keyspace.Space
}

var _ Store = (*HashStore)(nil)

// NewHashStore returns an empty store.
func NewHashStore() *HashStore { return &HashStore{space: keyspace.New()} }

// Set implements Store.
func (s *HashStore) Set(_ context.Context, key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.space.Set(key, bytes.Clone(value))
	return nil
}

// Get implements Store.
func (s *HashStore) Get(ctx context.Context, key string) ([]byte, error) {
	values, err := s.MultiGet(ctx, key)
	if err != nil {
		return nil, err
	}
	return values[0], nil
}

// Add implements Store.
func (s *HashStore) Add(_ context.Context, key string, delta int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.space.Add(key, delta)
}

// CompareSet implements Store.
func (s *HashStore) CompareSet(_ context.Context, key string, expected, desired []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.space.CompareSet(key, expected, bytes.Clone(desired))), nil
}

// Check implements Store.
func (s *HashStore) Check(_ context.Context, keys ...string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if !s.space.Has(key) {
			return false, nil
		}
	}
	return true, nil
}

// Wait implements Store.
func (s *HashStore) Wait(ctx context.Context, keys ...string) error {
	released := make(chan struct{})
	s.mu.Lock()
	w := s.space.Wait(keys, func() { close(released) })
	s.mu.Unlock()
	if w == nil {
		return nil
	}
	select {
	case <-released:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	missing := s.space.Cancel(w)
	s.mu.Unlock()
	if len(missing) == 0 {
		return nil
	}
	return waitError(ctx, missing)
}

// NumKeys implements Store.
func (s *HashStore) NumKeys(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.space.NumKeys(), nil
}

// Delete implements Store.
func (s *HashStore) Delete(_ context.Context, key string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.space.Delete(key), nil
}

// Append implements Store.
func (s *HashStore) Append(_ context.Context, key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.space.Append(key, value)
	return nil
}

// MultiGet implements Store. It reads all values at one moment.
func (s *HashStore) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	for {
		if values, ok := s.tryGet(keys); ok {
			return values, nil
		}
		// A key may be deleted again before the next tryGet, so this can take more than one wait.
		if err := s.Wait(ctx, keys...); err != nil {
			return nil, err
		}
	}
}

// tryGet returns copies of the values of keys, or false if one is missing.
func (s *HashStore) tryGet(keys []string) ([][]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	values := make([][]byte, len(keys))
	for i, key := range keys {
		value, ok := s.space.Get(key)
		if !ok {
			return nil, false
		}
		values[i] = bytes.Clone(value)
	}
	return values, true
}

// MultiSet implements Store.
func (s *HashStore) MultiSet(_ context.Context, pairs ...Pair) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pair := range pairs {
		s.space.Set(pair.Key, bytes.Clone(pair.Value))
	}
	return nil
}

// waitError returns the error of a wait that ctx ended while keys were missing.
func waitError(ctx context.Context, missing []string) error {
	return fmt.Errorf("wait for %s: %w", keyspace.NameKeys(missing), ContextError(ctx))
}
