package kvstore

import "context"

// Pair is a key and its value.
type Pair struct {
	Key   string
	Value []byte
}

// Store is a key-value store with the operations of torch's Store.
//
// Get, Wait and MultiGet block until their keys are present or their context ends. The deadline of the context is the
// operation's timeout and results in an ErrTimeout; a cancellation results in the context's cause. The caller may
// change values after it has passed them to a Store, and values that a Store returned.
//
// Keys are those that a torch program passes to its store. A Store may put a prefix before them, such as the "/" of
// torch's TCPStore and FileStore; callers never see the prefix.
type Store interface {
	// Set stores value under key and replaces an earlier value.
	Set(ctx context.Context, key string, value []byte) error

	// Get returns the value of key. It blocks until key has a value.
	Get(ctx context.Context, key string) ([]byte, error)

	// Add adds delta to the decimal number stored under key, or to 0 if key is missing, and returns the sum, which
	// wraps around at 64 bits. It reads the old value as C's stoll does: "12abc" is 12. If the value starts with no
	// number, Add fails and leaves it.
	Add(ctx context.Context, key string, delta int64) (int64, error)

	// CompareSet stores desired if key holds expected, or if key is missing and expected is empty. It returns desired
	// if it stored it. Otherwise it returns the value of key, or expected if key is missing.
	CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error)

	// Check reports whether every key is present.
	Check(ctx context.Context, keys ...string) (bool, error)

	// Wait blocks until every key has been present at some moment since the call.
	Wait(ctx context.Context, keys ...string) error

	// NumKeys returns the number of keys.
	NumKeys(ctx context.Context) (int64, error)

	// Delete removes key and reports whether it was present.
	Delete(ctx context.Context, key string) (bool, error)

	// Append appends value to the value of key. A missing key counts as empty.
	Append(ctx context.Context, key string, value []byte) error

	// MultiGet returns the values of keys, in order. It blocks until every key has one.
	MultiGet(ctx context.Context, keys ...string) ([][]byte, error)

	// MultiSet stores all pairs at once. If a key occurs twice, its last value counts.
	MultiSet(ctx context.Context, pairs ...Pair) error
}
