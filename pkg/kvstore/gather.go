package kvstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// GetAll waits for the values of <prefix>0 to <prefix>(worldSize-1) and returns them in the order of the ranks, each
// rank's own included (seed 001, get_all). It only reads them: Synchronize stores them too. Every member of the world
// calls it, once a prefix. Each tells by the barrier <prefix>/finished that it has its values, and rank 0, which may
// be the one that hosts the store, waits there until all have; the others do not. A connection that breaks
// while another rank than 0 tells this is no error: it has its values, and rank 0 may have left.
//
// It is bounded by ctx. Four messages a member, O(N) for all; see Synchronize for their bytes.
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
		// That is how it looks when rank 0 has heard of everybody and has left, and the store with it, before the
		// store's answer came here. If it is not that, rank 0 waits in vain and tells.
	case err != nil:
		return nil, fmt.Errorf("get all of %q: %w", prefix, err)
	}
	if rank != 0 {
		return values, nil
	}
	if err := store.Wait(ctx, last); err != nil {
		return nil, fmt.Errorf("get all of %q: rank 0 waits until all %d ranks have finished: %w", prefix, worldSize, err)
	}
	return values, nil
}

// Synchronize gives every rank the data of all ranks, in their order: it stores data as <prefix><rank> and
// gets all (seed 001). timeout bounds the whole call, zero means 300 s; an earlier deadline of ctx counts
// too. As with Barrier it is a context of this call alone. The keys stay in the store, so a second use of a prefix
// would find the first one's data: each needs a prefix of its own.
//
// The messages are O(N), but each of N ranks gets N values, so the store sends N² times their size: 4 MB for
// 64 ranks of 1 KB each, 1 GB for 1,000.
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
