package membership

import (
	"context"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// create gives key a value unless it has one, wakes those who wait for it, and returns what it holds. The CompareSet decides; the Set, of
// what stands already, is for torch's servers without libuv, where a CompareSet ends no wait.
func create(ctx context.Context, store kvstore.Store, key string, value []byte) ([]byte, error) {
	got, err := store.CompareSet(ctx, key, nil, value)
	if err != nil {
		return nil, err
	}
	return got, store.Set(ctx, key, got)
}
