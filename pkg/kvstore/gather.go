package kvstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// GetAll waits for the values of <prefix>0 to <prefix>(worldSize-1) and returns them in rank order, the caller's own
// included (torch 2.14, torch/distributed/elastic/utils/store.py, get_all). It only reads; Synchronize stores the
// values too.
//
// Every member calls GetAll once per prefix. A member reports through the barrier <prefix>/finished that it has its
// values. Rank 0 waits there for all members, because it may host the store; the others do not wait. If a rank other
// than 0 loses its connection during that report, its GetAll succeeds all the same: the rank has its values, and rank
// 0 may have left.
//
// GetAll ends with ctx. It takes two store operations per member and two more, O(N) for all; see Synchronize for their
// size.
func GetAll(ctx context.Context, store Store, rank, worldSize int, prefix string) ([][]byte, error) {
	if worldSize < 1 {
		return nil, fmt.Errorf("get all of %q: world size %d: must be at least 1", prefix, worldSize)
	}
	if err := validRank(rank, worldSize); err != nil {
		return nil, fmt.Errorf("get all of %q: %w", prefix, err)
	}
	keys := make([]string, worldSize)
	for i := range keys {
		keys[i] = prefix + strconv.Itoa(i)
	}
	values, err := store.MultiGet(ctx, keys...)
	if err != nil {
		return nil, fmt.Errorf("get all of %q from %d ranks: %w", prefix, worldSize, err)
	}
	last, err := arrive(ctx, store, worldSize, prefix+"/finished")
	switch {
	case rank != 0 && errors.Is(err, ErrConnection) && !errors.Is(err, ErrTimeout):
		// Rank 0 has probably heard from every member and left, and the store with it, before the store's reply
		// arrived here. If not, rank 0 times out and reports that.
	case err != nil:
		return nil, fmt.Errorf("get all of %q: %w", prefix, err)
	}
	if rank != 0 {
		return values, nil
	}
	if err := store.Wait(ctx, last); err != nil {
		return nil, fmt.Errorf("get all of %q: rank 0 waits for all %d ranks to finish: %w", prefix, worldSize, err)
	}
	return values, nil
}

// Synchronize gives every rank the data of all ranks, in rank order: it stores data under <prefix><rank> and calls
// GetAll (torch 2.14, torch/distributed/elastic/utils/store.py, synchronize). timeout limits the whole call; zero
// means 300 s. An earlier deadline of ctx also applies.
//
// The keys stay in the store, and a second use of a prefix would find the data of the first: each call needs a prefix
// of its own.
//
// The number of operations is O(N), but each of N ranks reads N values, so the store sends N² values: 4 MB for 64 ranks
// of 1 KB each, 1 GB for 1,000.
func Synchronize(
	ctx context.Context, store Store, data []byte, rank, worldSize int, prefix string, timeout time.Duration,
) ([][]byte, error) {
	if err := validRank(rank, worldSize); err != nil { // before anything is stored
		return nil, fmt.Errorf("synchronize %q: %w", prefix, err)
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(timeout, defaultTimeout))
	defer cancel()
	if err := store.Set(ctx, prefix+strconv.Itoa(rank), data); err != nil {
		return nil, fmt.Errorf("synchronize %q: store rank %d's data: %w", prefix, rank, err)
	}
	return GetAll(ctx, store, rank, worldSize, prefix)
}
