package kvstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// The keys of a barrier, after its prefix, as torch's elastic agents name them.
const (
	numMembersKey  = "/num_members"  // counts the arrivals
	lastMemberKey  = "/last_member"  // set by the last member to arrive
	traceKey       = "/TRACE"        // after prefix and rank: this rank timed out
	tracingGateKey = "/TRACING_GATE" // set by rank 0 after it looked for the trace of every other rank
)

// valIgnored is the value of every barrier key whose presence alone matters.
var valIgnored = []byte("<val_ignored>")

// The time limits of torch's helpers where the caller sets none.
const (
	defaultTimeout      = 300 * time.Second
	defaultTraceTimeout = 10 * time.Second
)

// BarrierOptions describe a barrier.
type BarrierOptions struct {
	// WorldSize is the number of members, at least 1 and the same for all.
	WorldSize int

	// Prefix names the barrier: its keys begin with it. A prefix serves once in the life of a store, because the keys
	// stay. Once all members have arrived, a further call with the same prefix returns at once.
	Prefix string

	// Timeout limits the arrival and the wait for the others. Zero means 300 s. An earlier deadline of the call's
	// context also applies.
	Timeout time.Duration

	// Trace finds the missing ranks after Timeout. With nil, Barrier returns the error of the wait.
	Trace *Trace
}

// Barrier blocks until WorldSize members have called it with the same prefix (torch 2.14,
// torch/distributed/elastic/utils/store.py, barrier). <prefix>/num_members counts the arrivals. The last member to
// arrive sets <prefix>/last_member, for which all wait. That is two store operations per member and one more, O(N) for
// all. A member that gives up stays counted.
//
// After Timeout, each member with a Trace sets <prefix><rank>/TRACE. Rank 0 waits for the traces of the other ranks in
// turn: for Trace.Timeout each until the first is missing, and for 1 ms from then on. It then sets
// <prefix>/TRACING_GATE, for which the other ranks wait up to Timeout. The error is then a [*MissingRanksError]. The
// trace takes up to four store operations per member, O(N) for all. If the gate is never set, as when rank 0 itself is
// missing, or without Trace, Barrier returns the error of the wait. Both errors are ErrTimeout. Barrier starts no trace
// if ctx itself has ended.
//
// Timeout applies through a context derived from ctx for this call alone. torch instead changes the timeout of the
// store and restores it; here there is nothing to restore.
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
	return validRank(o.Trace.Rank, o.WorldSize)
}

func (o BarrierOptions) withDefaults() BarrierOptions {
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	if o.Trace != nil {
		trace := *o.Trace
		trace.Timeout = cmp.Or(trace.Timeout, defaultTraceTimeout)
		if trace.Decode == nil {
			trace.Decode = strconv.Itoa
		}
		o.Trace = &trace
	}
	return o
}

// run is the barrier without its trace.
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

// arrive counts a member in and returns the key that is set when all members have arrived.
func arrive(ctx context.Context, store Store, worldSize int, prefix string) (last string, err error) {
	arrived, err := store.Add(ctx, prefix+numMembersKey, 1)
	if err != nil {
		return "", fmt.Errorf("arrive at barrier %q: %w", prefix, err)
	}
	last = prefix + lastMemberKey
	if arrived >= int64(worldSize) { // more only if a member tried again
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
