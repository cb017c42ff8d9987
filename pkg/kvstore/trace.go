package kvstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
)

// maxMissing limits how many missing ranks are named. With about 8 ranks per node, 16 names show whether one node is
// lost or several.
const maxMissing = 16

// Trace makes a barrier that times out look for the missing ranks (torch 2.14,
// torch/distributed/elastic/utils/store.py, _try_detecting_missing_ranks).
type Trace struct {
	// Rank is the caller's own rank, in [0, WorldSize) and different for each member.
	Rank int

	// Decode returns the name of a rank, such as its host name. Several ranks may share a name. Nil means the rank's
	// number.
	Decode func(rank int) string

	// Timeout is how long rank 0 waits for the trace of each rank until the first is missing. It waits 1 ms for each
	// rank after that. Zero means 10 s.
	Timeout time.Duration
}

// MissingRanksError is the error of a traced barrier that timed out. It wraps the error of the barrier's wait, which
// is an ErrTimeout.
type MissingRanksError struct {
	Prefix    string        // of the barrier
	Rank      int           // of the member that returns the error
	WorldSize int           // of the barrier
	Timeout   time.Duration // of the barrier, before the trace began

	// Missing are the ranks that did not arrive, in ascending order and 16 at most. It is empty unless Rank is 0,
	// because only rank 0 looks for them. A rank that arrives so late that it has not timed out when rank 0 looks also
	// counts as missing.
	Missing []int

	// Names are the names of Missing, each once. If Rank is not 0, Names holds the name of rank 0 alone.
	Names []string

	err error
}

// Error names the missing ranks on rank 0, and refers the other ranks to rank 0.
func (e *MissingRanksError) Error() string {
	names := strings.Join(e.Names, ", ")
	var what string
	switch {
	case e.Rank != 0:
		what = "see rank 0 (" + names + ") for the missing ranks"
	case len(e.Missing) == 0:
		what = "no rank is missing now: the last one arrived too late"
	case len(e.Missing) == maxMissing:
		what = "missing ranks [" + names + "] and perhaps more"
	default:
		what = "missing ranks [" + names + "]"
	}
	return fmt.Sprintf("barrier %q of %d members timed out on rank %d after %s: %s",
		e.Prefix, e.WorldSize, e.Rank, seconds.Format(e.Timeout), what)
}

func (e *MissingRanksError) Unwrap() error { return e.err }

// trace turns timedOut, the error of the barrier's wait, into an error that names the missing ranks. If the trace
// itself times out, trace returns timedOut. If the trace fails otherwise, trace joins both errors.
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

// findMissing is the trace of rank 0: it looks for the trace of every other rank once and returns the ranks that have
// none.
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
			wait = time.Millisecond // the remaining ranks had the same time as this one
		}
	}
	return missing, o.set(ctx, store, o.Prefix+tracingGateKey)
}

// awaitTrace reports whether the trace of a rank appears within wait. It checks once more at the end, because over a
// network 1 ms can pass before the store replies to a wait.
func (o BarrierOptions) awaitTrace(ctx context.Context, store Store, rank int, wait time.Duration) (bool, error) {
	err := o.waitFor(ctx, store, o.traceKeyOf(rank), wait)
	if !errors.Is(err, ErrTimeout) || ctx.Err() != nil {
		return err == nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	return store.Check(ctx, o.traceKeyOf(rank))
}

// awaitRankZero is the trace of the other ranks: it returns nil after rank 0 has looked for them.
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
		missing = []int{0} // the error names rank 0
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
