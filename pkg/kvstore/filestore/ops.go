package filestore

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/internal/keyspace"
)

// pollInterval is how often a wait reads the file, as in torch. There is no event to wait for: the file may be on NFS,
// where the kernel does not learn of another node's writes.
const pollInterval = 10 * time.Millisecond

// Set implements [kvstore.Store].
func (s *Store) Set(ctx context.Context, key string, value []byte) error {
	return s.do(ctx, exclusiveLock, "set", []string{key}, func() error {
		return s.write(record{userPrefix + key, bytes.Clone(value)})
	})
}

// Get implements [kvstore.Store].
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	values, err := s.MultiGet(ctx, key)
	if err != nil {
		return nil, err
	}
	return values[0], nil
}

// Add implements [kvstore.Store], but reads an empty value as 0.
func (s *Store) Add(ctx context.Context, key string, delta int64) (int64, error) {
	var sum int64
	err := s.do(ctx, exclusiveLock, "add to", []string{key}, func() error {
		n, err := s.log.sum(userPrefix+key, delta)
		if err != nil {
			return err
		}
		sum = n
		return s.write(record{userPrefix + key, strconv.AppendInt(nil, n, 10)})
	})
	if err != nil {
		return 0, err
	}
	return sum, nil
}

// CompareSet implements [kvstore.Store].
func (s *Store) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	var result []byte
	err := s.do(ctx, exclusiveLock, "compare and set", []string{key}, func() error {
		held, ok := s.log.data[userPrefix+key]
		switch {
		case !ok && len(expected) > 0:
			result = bytes.Clone(expected)
			return nil
		case ok && !bytes.Equal(held, expected):
			result = bytes.Clone(held)
			return nil
		}
		result = bytes.Clone(desired)
		return s.write(record{userPrefix + key, bytes.Clone(desired)})
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// Check implements [kvstore.Store].
func (s *Store) Check(ctx context.Context, keys ...string) (bool, error) {
	var all bool
	err := s.do(ctx, sharedLock, "check", keys, func() error {
		all = len(s.log.missing(asFileKeys(keys))) == 0
		return nil
	})
	return all, err
}

// NumKeys implements [kvstore.Store]. It also counts the store's own keys: "refcount/", and "cleanup/" once a store
// was closed.
func (s *Store) NumKeys(ctx context.Context) (int64, error) {
	var n int64
	err := s.do(ctx, sharedLock, "count keys", nil, func() error {
		n = int64(len(s.log.data))
		return nil
	})
	return n, err
}

// ListKeys returns all keys, sorted, including the store's own, whose first letter torch cuts off. A user's key
// "refcount/" looks like the store's.
func (s *Store) ListKeys(ctx context.Context) ([]string, error) {
	var keys []string
	err := s.do(ctx, sharedLock, "list keys", nil, func() error {
		for key := range s.log.data {
			keys = append(keys, strings.TrimPrefix(key, userPrefix))
		}
		return nil
	})
	slices.Sort(keys)
	return keys, err
}

// Delete implements [kvstore.Store].
func (s *Store) Delete(ctx context.Context, key string) (bool, error) {
	var there bool
	err := s.do(ctx, exclusiveLock, "delete", []string{key}, func() error {
		_, there = s.log.data[userPrefix+key]
		return s.write(record{key: deletePrefix + userPrefix + key})
	})
	if err != nil {
		return false, err
	}
	return there, nil
}

// Append implements [kvstore.Store]. It writes the whole value to the file again.
func (s *Store) Append(ctx context.Context, key string, value []byte) error {
	return s.do(ctx, exclusiveLock, "append to", []string{key}, func() error {
		return s.write(record{userPrefix + key, slices.Concat(s.log.data[userPrefix+key], value)})
	})
}

// MultiSet implements [kvstore.Store].
func (s *Store) MultiSet(ctx context.Context, pairs ...kvstore.Pair) error {
	records := make([]record, len(pairs))
	for i, pair := range pairs {
		records[i] = record{userPrefix + pair.Key, bytes.Clone(pair.Value)}
	}
	return s.do(ctx, exclusiveLock, "set several keys", nil, func() error {
		return s.write(records...)
	})
}

// MultiGet implements [kvstore.Store]. It reads all values at one moment.
func (s *Store) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	values := make([][]byte, len(keys))
	err := s.poll(ctx, keys, func() map[string]struct{} {
		missing := s.log.missing(asFileKeys(keys))
		if len(missing) > 0 {
			return missing
		}
		for i, key := range keys {
			values[i] = bytes.Clone(s.log.data[userPrefix+key])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return values, nil
}

// Wait implements [kvstore.Store]. It reads the file every 10 ms and misses no record in between.
func (s *Store) Wait(ctx context.Context, keys ...string) error {
	var w *keyWait
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.log != nil {
			delete(s.log.waits, w)
		}
	}()
	return s.poll(ctx, keys, func() map[string]struct{} {
		if w == nil {
			w = &keyWait{missing: s.log.missing(asFileKeys(keys))}
			s.log.waits[w] = struct{}{}
		}
		return w.missing
	})
}

// poll calls look, with the shared lock held, until no key is missing.
func (s *Store) poll(ctx context.Context, keys []string, look func() (missing map[string]struct{})) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	missing := keys
	for {
		err := s.withLock(ctx, sharedLock, s.closing, func() error {
			missing = missing[:0:0]
			for key := range look() {
				missing = append(missing, strings.TrimPrefix(key, userPrefix))
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("wait for %s in file store %q: %w", keyspace.NameKeys(slices.Clone(missing)), s.path, err)
		}
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("file store %q: wait for %s: %w", s.path, keyspace.NameKeys(missing), kvstore.ContextError(ctx))
		}
	}
}

// do calls f with the lock held. Its error names the operation and the keys.
func (s *Store) do(ctx context.Context, lock lockKind, what string, keys []string, f func() error) error {
	err := s.withLock(ctx, lock, s.closing, f)
	if err == nil {
		return nil
	}
	if len(keys) > 0 {
		what += " " + keyspace.NameKeys(slices.Clone(keys))
	}
	return fmt.Errorf("%s in file store %q: %w", what, s.path, err)
}

// asFileKeys returns keys as the file holds them.
func asFileKeys(keys []string) []string {
	inFile := make([]string, len(keys))
	for i, key := range keys {
		inFile[i] = userPrefix + key
	}
	return inFile
}
