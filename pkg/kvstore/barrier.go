package kvstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// The keys of a barrier, after its prefix, and what they hold: those of torch's elastic agents.
const (
	numMembersKey  = "/num_members"  // counts the arrivals
	lastMemberKey  = "/last_member"  // set by the last member to arrive
	traceKey       = "/TRACE"        // after prefix and rank: this rank has timed out
	tracingGateKey = "/TRACING_GATE" // set by rank 0 when it has looked for every other rank's trace
)

// valIgnored is the value of every key of a barrier that only has to be there.
var valIgnored = []byte("<val_ignored>")

// The times that torch gives what its caller does not bound (seed 001).
const (
	defaultTimeout      = 300 * time.Second
	defaultTraceTimeout = 10 * time.Second
)

// BarrierOptions describe a barrier.
type BarrierOptions struct {
	// WorldSize is the number of members, at least 1 and the same for all.
	WorldSize int

	// Prefix names the barrier: its keys begin with it. It serves once in the life of a store, for the keys
	// stay there: who comes to a barrier that was passed before passes at once.
	Prefix string

	// Timeout bounds the arrival and the wait for the others. Zero means 300 s. The deadline of the call's
	// context counts too where it is earlier.
	Timeout time.Duration

	// Trace finds out who is missing when Timeout is over. Nil leaves it at the wait's error.
	Trace *Trace
}

// Barrier returns when WorldSize members have called it with the same prefix (seed 001). <prefix>/num_members counts
// the arrivals and the last one sets <prefix>/last_member, for which all wait: two messages a member and one more, O(N)
// for all. A member that gives up stays counted.
//
// After Timeout, each member with a Trace leaves <prefix><rank>/TRACE. Rank 0 waits for the others' in turn, for
// Trace.Timeout each until the first is missing and 1 ms from then on, and opens <prefix>/TRACING_GATE, for which the
// others wait as long as they have waited here. The error is a [*MissingRanksError] then, and up to 3 messages a member
// more have been sent. Where the gate never opens, as when rank 0 itself is missing, or without Trace, the error
// is that of the wait. Either is ErrTimeout. No trace is begun when ctx itself has ended.
//
// The time limit is a context derived from ctx for this call alone, which is what seed 001's store_timeout is
// here: nothing of it is left when Barrier returns, in whichever way, so there is nothing to restore.
func Barrier(ctx context.Context, store Store, opts BarrierOptions) error {
	if err := opts.validate(); err != nil {
		return fmt.Errorf("barrier %q: %w", opts.Prefix, err)
	}
	opts = opts.withDefaults()
	err := opts.run(ctx, store)
	if opts.Trace == nil || !errors.Is(err, ErrTimeout) || ctx.Err() != nil {
		return err
	}
	return opts.trace(ctx, store, err)
}

func (o BarrierOptions) validate() error {
	if o.WorldSize < 1 {
		return fmt.Errorf("world size %d: must be at least 1", o.WorldSize)
	}
	if o.Trace == nil {
		return nil
	}
	if o.Trace.Decode == nil {
		return errors.New("trace without Decode: it must say what a rank is called")
	}
	return validRank(o.Trace.Rank, o.WorldSize)
}

func (o BarrierOptions) withDefaults() BarrierOptions {
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	if o.Trace != nil {
		trace := *o.Trace
		trace.Timeout = cmp.Or(trace.Timeout, defaultTraceTimeout)
		o.Trace = &trace
	}
	return o
}

// meet is the barrier without its trace.
func (o BarrierOptions) run(ctx context.Context, store Store) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	last, err := arrive(ctx, store, o.WorldSize, o.Prefix)
	if err != nil {
		return err
	}
	if err := store.Wait(ctx, last); err != nil {
		return fmt.Errorf("barrier %q of %d members: %w", o.Prefix, o.WorldSize, err)
	}
	return nil
}

// arrive counts a member in and returns the key that is there when all have been.
func arrive(ctx context.Context, store Store, worldSize int, prefix string) (last string, err error) {
	arrived, err := store.Add(ctx, prefix+numMembersKey, 1)
	if err != nil {
		return "", fmt.Errorf("arrive at barrier %q: %w", prefix, err)
	}
	last = prefix + lastMemberKey
	if arrived >= int64(worldSize) { // more than that only where somebody has tried again
		if err := store.Set(ctx, last, valIgnored); err != nil {
			return "", fmt.Errorf("open barrier %q: %w", prefix, err)
		}
	}
	return last, nil
}

func validRank(rank, worldSize int) error {
	if rank < 0 || rank >= worldSize {
		return fmt.Errorf("rank %d: must be at least 0 and below the world size, %d", rank, worldSize)
	}
	return nil
}
