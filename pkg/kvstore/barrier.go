package kvstore

import (
	"context"
	"fmt"
)

// Barrier returns when worldSize members have called it with the same prefix (seed 001). A prefix
// serves once, since its keys stay in the store: <prefix>/num_members counts the arrivals and the last
// of them sets <prefix>/last_member, for which all wait. A member that gives up because ctx ends stays
// counted.
func Barrier(ctx context.Context, store Store, worldSize int, prefix string) error {
	if worldSize < 1 {
		return fmt.Errorf("barrier %q: world size %d, want at least 1", prefix, worldSize)
	}
	arrived, err := store.Add(ctx, prefix+"/num_members", 1)
	if err != nil {
		return fmt.Errorf("arrive at barrier %q: %w", prefix, err)
	}
	last := prefix + "/last_member"
	if arrived >= int64(worldSize) { // more than that only where somebody tries again
		if err := store.Set(ctx, last, []byte("done")); err != nil {
			return fmt.Errorf("open barrier %q: %w", prefix, err)
		}
	}
	if err := store.Wait(ctx, last); err != nil {
		return fmt.Errorf("barrier %q of %d members: %w", prefix, worldSize, err)
	}
	return nil
}
