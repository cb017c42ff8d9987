package coord

import (
	"fmt"
	"iter"
)

// Edit is one write to a Keeper: it sets or deletes a key of one of the keeper's buckets. The store alone defines the
// meaning of buckets, keys and values.
type Edit struct {
	Bucket string
	Key    string
	Value  []byte // nil deletes the key
}

// Keeper makes a store's changes survive the store's process. The store calls it from one goroutine.
type Keeper interface {
	// Write makes all edits durable, or none of them if it fails.
	Write(edits []Edit) error
	// Failure returns a clause that says what the failure of a method means.
	Failure() string
	Close() error
}

// SharedKeeper is a Keeper that may pass to another store while this store still runs. So the store must not answer
// from its memory alone. Write fails once another store owns the keeper.
type SharedKeeper interface {
	Keeper
	// Confirm returns nil if, at some moment after the call began, the keeper belonged to this store and had belonged to
	// no other store since this store began.
	Confirm() error
}

// Contents is the content of a keeper: all edits that were written, without those that later ones have replaced or
// deleted, in any order.
type Contents interface {
	// All returns the keys and values of a bucket. A value need only be valid until the next iteration.
	All(bucket string) iter.Seq2[string, []byte]
}

// NewSharedServer returns a store that continues from the content of the keeper. Clients resume their sessions at it if
// it has the same ServerOptions.InstanceID; each session then has its whole TTL again. The store ends with an error
// when the keeper fails, and its clients look for another one. Close closes the keeper.
func NewSharedServer(keeper SharedKeeper, from Contents, opts ServerOptions) (*Server, error) {
	s := NewServer(opts)
	if err := s.core.load(from); err != nil {
		return nil, fmt.Errorf("load the coordination store: %w", err)
	}
	s.fresh, s.remote = false, len(s.core.sessions)
	s.keepJournal(keeper)
	return s, nil
}
