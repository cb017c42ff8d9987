package kvstore

import "context"

// Pair is a key and its value.
type Pair struct {
	Key   string
	Value []byte
}

// Store is a key-value store with the operations of torch's Store. Get, Wait and MultiGet block
// until their context ends; a deadline of the context is the operation's timeout and makes an error
// that is ErrTimeout, a cancellation one that is the context's cause. Values given to a Store and
// returned by it belong to the caller.
//
// Keys are named as torch's users name them. What a store puts before them, such as the "/" of torch's
// TCPStore and FileStore, is its own matter.
type Store interface {
	// Set stores value under key, in place of what was there.
	Set(ctx context.Context, key string, value []byte) error

	// Get returns the value of key, as soon as there is one.
	Get(ctx context.Context, key string) ([]byte, error)

	// Add adds delta to the decimal number stored under key, or to 0 where there is none, and returns
	// the sum, which wraps around at 64 bits. The old value is read as C's stoll reads it: "12abc" is
	// 12. A value that starts with no number is an error and stays.
	Add(ctx context.Context, key string, delta int64) (int64, error)

	// CompareSet stores desired if key holds expected, or if key is missing and expected is empty. It
	// returns desired if it has stored it, otherwise the value that key holds, and where key is
	// missing expected.
	CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error)

	// Check tells whether every key is present.
	Check(ctx context.Context, keys ...string) (bool, error)

	// Wait blocks until every key has been present at some time since the call.
	Wait(ctx context.Context, keys ...string) error

	// NumKeys returns the number of keys.
	NumKeys(ctx context.Context) (int64, error)

	// Delete removes key and tells whether it was there.
	Delete(ctx context.Context, key string) (bool, error)

	// Append appends value to what key holds, which is nothing where key is missing.
	Append(ctx context.Context, key string, value []byte) error

	// MultiGet returns the values of keys in their order, as soon as there is one for each.
	MultiGet(ctx context.Context, keys ...string) ([][]byte, error)

	// MultiSet stores all pairs at once. Of two pairs with the same key the later one counts.
	MultiSet(ctx context.Context, pairs ...Pair) error
}
