package membership

import (
	"context"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// create sets key to value unless key exists, wakes the key's waiters, and returns the stored value. Only the
// CompareSet decides the outcome; a failed wake is not an error. Use create for keys that are not deleted while
// somebody waits for them. A caller that finds the key already set wakes the waiters too, in case the creator has died.
func create(ctx context.Context, store kvstore.Store, key string, value []byte) ([]byte, error) {
	got, err := store.CompareSet(ctx, key, nil, value)
	if err != nil {
		return nil, err
	}
	wake(ctx, store, key, got)
	return got, nil
}

// wakeTries is the maximum number of attempts of wake.
const wakeTries = 4

// wake sets key to its current value again. torch's TCPStore server without libuv
// (torch/csrc/distributed/c10d/TCPStore.cpp) does not wake waiters on compare_set, so they would wait until their
// timeout. wake retries a failed attempt a few times; if the store fails for longer, the caller's next operation
// returns the error. wake can recreate a key that was deleted meanwhile; the caller must delete it again.
func wake(ctx context.Context, store kvstore.Store, key string, value []byte) {
	retry := backoff{limit: cleanupTimeout / wakeTries}
	for left := wakeTries; ; left-- {
		if store.Set(ctx, key, value) == nil || ctx.Err() != nil || left == 1 {
			return
		}
		retry.pause(ctx)
	}
}
