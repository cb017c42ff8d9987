package coord

import (
	"fmt"
	"iter"
)

// Edit is one write to a Keeper: it sets or deletes a key of one of the keeper's buckets. What buckets, keys and values
// mean is the store's business.
type Edit struct {
	Bucket string
	Key    string
	Value  []byte // nil deletes the key
}

// Keeper is where a store's changes survive its process. The store calls it from one goroutine.
type Keeper interface {
	// Write makes all edits durable, or none of them if it fails.
	Write(edits []Edit) error
	// Failure says, as a clause, what it means that a method has failed.
	Failure() string
	Close() error
}

// SharedKeeper is a Keeper that may pass to another store while this one runs. Such a store must not answer from what
// it remembers alone. Write fails if the keeper is not this store's any more.
type SharedKeeper interface {
	Keeper
	// Confirm returns nil if, at some moment after the call began, the keeper was this store's and had not been another
	// one's since this store began.
	Confirm() error
}

// Contents is what a keeper holds: all edits that were written, in any order, without those that later ones have
// replaced or deleted.
type Contents interface {
	// All returns the keys and values of a bucket. A value need only be valid until the iteration goes on.
	All(bucket string) iter.Seq2[string, []byte]
}

// NewSharedServer returns a store that continues from what the keeper holds. Clients resume their sessions at it, if
// they find a store with the same ServerOptions.InstanceID; each session then has its whole TTL again. The store ends
// with an error when the keeper fails, and its clients look for another one. Close closes the keeper.
func NewSharedServer(keeper SharedKeeper, from Contents, opts ServerOptions) (*Server, error) {
	s := NewServer(opts)
	if err := s.core.load(from); err != nil {
		return nil, fmt.Errorf("load the coordination store: %w", err)
	}
	s.fresh, s.remote = false, len(s.core.sessions)
	s.keepJournal(keeper)
	return s, nil
}
