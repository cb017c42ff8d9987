package membership

import (
	"context"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// create gives key a value unless it has one, wakes those who wait for it, and returns what it holds. The CompareSet decides, so what comes
// after it fails nobody. It is for keys that are never deleted, as long as somebody may wait for them: whoever finds one wakes the
// others as well, in place of a creator that has died.
func create(ctx context.Context, store kvstore.Store, key string, value []byte) ([]byte, error) {
	got, err := store.CompareSet(ctx, key, nil, value)
	if err != nil {
		return nil, err
	}
	wake(ctx, store, key, got)
	return got, nil
}

// wakeTries is how often wake tries.
const wakeTries = 4

// wake sets key to what it holds already, for torch's servers without libuv, where a CompareSet ends no wait. One who is not woken there would
// wait until its time is over, so a failure is tried again, a few times; for a store that fails for longer the caller's next
// operation tells. It brings back a key that was deleted meanwhile: the caller deletes it then.
func wake(ctx context.Context, store kvstore.Store, key string, value []byte) {
	retry := backoff{limit: cleanupTimeout / wakeTries}
	for left := wakeTries; ; left-- {
		if store.Set(ctx, key, value) == nil || ctx.Err() != nil || left == 1 {
			return
		}
		retry.pause(ctx)
	}
}
