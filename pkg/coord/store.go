package coord

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Revision counts the commits of a store. It never decreases; 0 is the revision before the first commit.
type Revision int64

// SessionID identifies a session. A store never uses an id twice. The empty id means no session.
type SessionID string

// Guard is a condition of a commit: the key still has this create-revision, so nobody has deleted it or created it
// again in the meantime. Create 0 requires that the key does not exist.
type Guard struct {
	Key    string
	Create Revision
}

// Op is one write of a commit.
type Op struct {
	Key    string
	Value  []byte // must not be modified after the commit
	Delete bool   // delete the key if it exists; all other fields are ignored
	// Owned binds the key to the writer's session: the store deletes the key when the session ends. Other keys stay
	// until a commit deletes them.
	Owned bool
	// TTL above 0 makes the store delete the key about that long after its latest put. It excludes Owned. Use it for
	// results, not for locks: a store may keep the key longer.
	TTL time.Duration
}

// Event is one change of a key.
type Event struct {
	Key     string
	Value   []byte   // the value that was put; must not be modified
	Create  Revision // the key's create-revision; a later put does not change it
	Deleted bool     // the key was deleted or its session has ended; Value is nil
}

// Batch is a group of changes that a watch delivers, in commit order. The changes of one commit are always in one
// batch.
type Batch struct {
	// Revision is the revision of the last commit in the batch.
	Revision Revision
	// Resync means that Events holds one put for each existing key and that the receiver must discard its earlier
	// state. The first batch of a watch is a Resync, and so is the first batch after a gap.
	Resync bool
	Events []Event
}

// Store is a client of a coordination store, with one session. It is safe for concurrent use.
//
// A store is linearizable: every watch that begins after a commit has returned includes that commit. Running watches
// deliver commits in order.
type Store interface {
	// Session returns the session's id, which does not change.
	Session() SessionID
	// TTL returns how long the session lives without a KeepAlive.
	TTL() time.Duration
	// KeepAlive proves that the session's owner is alive. It returns when the store has answered. The session then
	// lives for TTL, counted from some moment between call and return. Errors: ErrSessionLost, ErrUnavailable.
	//
	// When KeepAlive returns, the session's watches have received every commit that returned before the call. A store
	// that cannot promise this, because its watches may lag behind, must also be a [Getter]. Otherwise an agent could
	// prove that it is alive without having received the order to stop its workers, and two rounds could overlap.
	KeepAlive(ctx context.Context) error
	// Commit applies all ops, or none if a guard fails. No key may occur twice in ops. Commit returns the commit's
	// revision, which is also the create-revision of the keys that it created. Errors: ErrConflict, ErrSessionLost,
	// ErrTooLarge and ErrUnavailable. After ErrUnavailable the outcome is unknown: the store may have applied the
	// commit or may still apply it, but never after a later commit of the same Store.
	Commit(ctx context.Context, guards []Guard, ops []Op) (Revision, error)
	// Watch calls handle with a batch of all keys that begin with prefix, and then with a batch for each change. It
	// returns the cause of ctx when ctx ends, ErrSessionLost when the session is lost, or the error that handle
	// returns. Watch survives interruptions; it sends a Resync if it cannot deliver the missed changes one by one. Only
	// one goroutine calls handle at a time. Changes that arrive during a call are collected for the next one.
	Watch(ctx context.Context, prefix string, handle func(Batch) error) error
	// Lost is closed when the session is known to be lost: it has ended, or its store is gone for good. A silent
	// network alone does not close it. Err then returns the reason.
	Lost() <-chan struct{}
	// Err returns nil until Lost is closed. Afterwards its error wraps ErrSessionLost or ErrUnavailable.
	Err() error
	// Close ends the session, which deletes the session's keys at once, and releases the client's resources. It waits
	// until the store has answered or ctx ends.
	Close(ctx context.Context) error
}

// Getter is a [Store] whose watches may deliver a commit after a later KeepAlive has returned.
type Getter interface {
	// Get returns the value that a key had at some time during the call, or nil if the key did not exist. Errors:
	// ErrSessionLost, ErrUnavailable.
	Get(ctx context.Context, key string) ([]byte, error)
}

// MaxOps is the number of ops that every store accepts in one commit. It is etcd's default limit.
const MaxOps = 128

// MaxCommit is the size in bytes, keys plus values, that every store accepts in one commit.
const MaxCommit = 1 << 20

// Errors of a Store. Callers test for them with errors.Is.
var (
	ErrConflict    = errors.New("coordination store: a guard failed")
	ErrSessionLost = errors.New("the job's store has ended this node's session")
	ErrUnavailable = errors.New("the job's store is not available")
	ErrTooLarge    = errors.New("coordination store: the commit is too large")
)

// CheckCommit returns an error if no store accepts the commit: ErrTooLarge, or an error about an empty or repeated key.
func CheckCommit(guards []Guard, ops []Op) error {
	size := 0
	seen := make(map[string]bool, len(ops))
	for _, op := range ops {
		if op.Key == "" || seen[op.Key] {
			return fmt.Errorf("coordination store: key %q is empty or occurs twice in a commit", op.Key)
		}
		seen[op.Key] = true
		size += len(op.Key) + len(op.Value)
	}
	if len(ops) > MaxOps || len(guards) > MaxOps || size > MaxCommit {
		return fmt.Errorf("%w: %d ops, %d guards, %d bytes", ErrTooLarge, len(ops), len(guards), size)
	}
	return nil
}
