package kvstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxMissing is how many missing ranks are named. With some 8 ranks a node it tells one lost node from several.
const maxMissing = 16

// Trace asks a barrier that times out for the ranks that are missing (seed 001).
type Trace struct {
	// Rank is the caller's own, in [0, WorldSize) and different for each member.
	Rank int

	// Decode says what a rank is called, such as the name of its host; several may have one name. Nil is refused
	// before anything is stored.
	Decode func(rank int) string

	// Timeout is how long rank 0 waits for the sign of another rank until the first one is found missing;
	// after that, 1 ms each. Zero means 10 s.
	Timeout time.Duration
}

// MissingRanksError is the error of a traced barrier that timed out. It wraps the error of the barrier's wait, which is
// ErrTimeout.
type MissingRanksError struct {
	Prefix    string        // of the barrier
	Rank      int           // of who tells
	WorldSize int           // of the barrier
	Timeout   time.Duration // after which the trace was begun

	// Missing are ranks that have not come, in ascending order: none where Rank is not 0, for only rank 0 looks for
	// them, and 16 at most. Rank 0 counts one that comes to the barrier so late that it has not timed out itself as missing.
	Missing []int

	// Names are the names of Missing, or of rank 0 where Rank is not 0, each of them once.
	Names []string

	err error
}

// Error tells rank 0 who is missing, and the other ranks to look there.
func (e *MissingRanksError) Error() string {
	names := strings.Join(e.Names, ", ")
	var what string
	switch {
	case e.Rank != 0:
		what = "check rank 0 (" + names + ") for the ranks that are missing"
	case len(e.Missing) == 0:
		what = "no rank is missing now, the last came too late"
	case len(e.Missing) == maxMissing:
		what = "missing ranks [" + names + "] and perhaps more"
	default:
		what = "missing ranks [" + names + "]"
	}
	return fmt.Sprintf("barrier %q of %d members timed out on rank %d after %v: %s",
		e.Prefix, e.WorldSize, e.Rank, e.Timeout, what)
}

func (e *MissingRanksError) Unwrap() error { return e.err }

// trace turns timedOut, the error of the barrier's wait, into one that names the ranks that are missing. Where they cannot
// be found out it stays: as it is if the rest of the trace does not come in time, else joined with the reason.
func (o BarrierOptions) trace(ctx context.Context, store Store, timedOut error) error {
	find := awaitRankZero
	if o.Trace.Rank == 0 {
		find = findMissing
	}
	missing, err := find(ctx, store, o)
	switch {
	case err == nil:
		return o.missingRanks(missing, timedOut)
	case errors.Is(err, ErrTimeout) && ctx.Err() == nil:
		return timedOut
	}
	return fmt.Errorf("%w; trace the missing ranks: %w", timedOut, err)
}

// lookForOthers is the trace of rank 0: it goes over the other ranks once and returns those that have left no trace.
func findMissing(ctx context.Context, store Store, o BarrierOptions) (missing []int, err error) {
	if err := o.set(ctx, store, o.traceKeyOf(0)); err != nil {
		return nil, err
	}
	wait := o.Trace.Timeout
	for rank := 1; rank < o.WorldSize && len(missing) < maxMissing; rank++ {
		there, err := o.awaitTrace(ctx, store, rank, wait)
		switch {
		case err != nil:
			return nil, err
		case !there:
			missing = append(missing, rank)
			wait = time.Millisecond // the others have had the time that this one was waited for
		}
	}
	return missing, o.set(ctx, store, o.Prefix+tracingGateKey)
}

// hasTrace waits for a rank's trace. In the end it looks again, for 1 ms can be over before the answer to a wait has come
// over the network.
func (o BarrierOptions) awaitTrace(ctx context.Context, store Store, rank int, wait time.Duration) (bool, error) {
	err := o.waitFor(ctx, store, o.traceKeyOf(rank), wait)
	if !errors.Is(err, ErrTimeout) || ctx.Err() != nil {
		return err == nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	return store.Check(ctx, o.traceKeyOf(rank))
}

// awaitGate is the trace of the other ranks: rank 0 has looked for them when it returns without an error.
func awaitRankZero(ctx context.Context, store Store, o BarrierOptions) (missing []int, err error) {
	if err := o.set(ctx, store, o.traceKeyOf(o.Trace.Rank)); err != nil {
		return nil, err
	}
	return nil, o.waitFor(ctx, store, o.Prefix+tracingGateKey, o.Timeout)
}

func (o BarrierOptions) missingRanks(missing []int, timedOut error) *MissingRanksError {
	e := &MissingRanksError{
		Prefix: o.Prefix, Rank: o.Trace.Rank, WorldSize: o.WorldSize,
		Timeout: o.Timeout, Missing: missing, err: timedOut,
	}
	if e.Rank != 0 {
		missing = []int{0} // it is the one that is named
	}
	for _, rank := range missing {
		if name := o.Trace.Decode(rank); !slices.Contains(e.Names, name) {
			e.Names = append(e.Names, name)
		}
	}
	return e
}

func (o BarrierOptions) traceKeyOf(rank int) string { return o.Prefix + strconv.Itoa(rank) + traceKey }

func (o BarrierOptions) set(ctx context.Context, store Store, key string) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	return store.Set(ctx, key, valIgnored)
}

func (o BarrierOptions) waitFor(ctx context.Context, store Store, key string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return store.Wait(ctx, key)
}
