package kvstore

import (
	"context"
	"net/netip"
)

// PrefixStore is a namespace within another Store: it puts a prefix and "/" before every key, as torch's PrefixStore
// does. Prefixes nest; the prefix of the inner store comes first. A PrefixStore has nothing to close: the other store
// belongs to its owner. Use [NewPrefixStore].
type PrefixStore struct {
	prefix string
	store  Store
}

var _ Store = (*PrefixStore)(nil)

// NewPrefixStore returns a store of the keys in store that begin with prefix and "/".
func NewPrefixStore(prefix string, store Store) *PrefixStore {
	return &PrefixStore{prefix: prefix + "/", store: store}
}

// Set implements Store.
func (s *PrefixStore) Set(ctx context.Context, key string, value []byte) error {
	return s.store.Set(ctx, s.prefix+key, value)
}

// Get implements Store.
func (s *PrefixStore) Get(ctx context.Context, key string) ([]byte, error) {
	return s.store.Get(ctx, s.prefix+key)
}

// Add implements Store.
func (s *PrefixStore) Add(ctx context.Context, key string, delta int64) (int64, error) {
	return s.store.Add(ctx, s.prefix+key, delta)
}

// CompareSet implements Store.
func (s *PrefixStore) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	return s.store.CompareSet(ctx, s.prefix+key, expected, desired)
}

// Check implements Store.
func (s *PrefixStore) Check(ctx context.Context, keys ...string) (bool, error) {
	return s.store.Check(ctx, s.prefixed(keys)...)
}

// Wait implements Store.
func (s *PrefixStore) Wait(ctx context.Context, keys ...string) error {
	return s.store.Wait(ctx, s.prefixed(keys)...)
}

// NumKeys returns the number of keys in the whole underlying store, as torch's PrefixStore does.
func (s *PrefixStore) NumKeys(ctx context.Context) (int64, error) {
	return s.store.NumKeys(ctx)
}

// Delete implements Store.
func (s *PrefixStore) Delete(ctx context.Context, key string) (bool, error) {
	return s.store.Delete(ctx, s.prefix+key)
}

// Append implements Store.
func (s *PrefixStore) Append(ctx context.Context, key string, value []byte) error {
	return s.store.Append(ctx, s.prefix+key, value)
}

// MultiGet implements Store.
func (s *PrefixStore) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	return s.store.MultiGet(ctx, s.prefixed(keys)...)
}

// MultiSet implements Store.
func (s *PrefixStore) MultiSet(ctx context.Context, pairs ...Pair) error {
	prefixed := make([]Pair, len(pairs))
	for i, pair := range pairs {
		prefixed[i] = Pair{Key: s.prefix + pair.Key, Value: pair.Value}
	}
	return s.store.MultiSet(ctx, prefixed...)
}

// LocalAddr returns the LocalAddr of the underlying store, such as that of a tcpstore.Client, and the zero value if
// that store has none.
func (s *PrefixStore) LocalAddr() netip.AddrPort {
	if client, ok := s.store.(interface{ LocalAddr() netip.AddrPort }); ok {
		return client.LocalAddr()
	}
	return netip.AddrPort{}
}

func (s *PrefixStore) prefixed(keys []string) []string {
	prefixed := make([]string, len(keys))
	for i, key := range keys {
		prefixed[i] = s.prefix + key
	}
	return prefixed
}
