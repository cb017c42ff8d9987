package coord

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Revision counts the commits of a store; it never falls. 0 is before the first.
type Revision int64

// SessionID names a session; it is never used again. Empty means no session.
type SessionID string

// Guard is a condition of a commit: the key still has this create-revision, so that it was
// neither deleted nor made anew meanwhile. Create 0 means that the key must not exist.
type Guard struct {
	Key    string
	Create Revision
}

// Op is one write of a commit.
type Op struct {
	Key    string
	Value  []byte // not to be changed afterwards
	Delete bool   // delete the key, if it is there; all else is unused
	// Owned binds a put key to the writer's session: it vanishes with it. Other keys stay until they are deleted.
	Owned bool
	// TTL, above 0, deletes a put key after about that time, counted anew by each put; Owned is false then. It is for
	// results, not for locks: a store may keep the key longer.
	TTL time.Duration
}

// Event is one change of a key.
type Event struct {
	Key     string
	Value   []byte   // after a put; not to be changed
	Create  Revision // the key's create-revision, which a later put leaves as it is
	Deleted bool     // deleted, or gone with its session; Value is nil then
}

// Batch is a part of what a watch sees, in the order of commits. A commit is never split over
// two batches.
type Batch struct {
	// Revision is that of the last commit in the batch.
	Revision Revision
	// Resync says that Events are one put for each key that there is, and that what was known before is to be
	// forgotten: the first batch of a watch, and the first after a gap.
	Resync bool
	Events []Event
}

// Store is a client of a coordination store, with one session. It is safe for concurrent use.
//
// A store is linearizable: a commit that has returned is seen by every watch that begins later, and
// by those under way in order.
type Store interface {
	// Session is the session's id; it does not change.
	Session() SessionID
	// TTL is how long the session lives without a KeepAlive.
	TTL() time.Duration
	// KeepAlive proves that the session's owner is alive and returns when the store has answered. The session
	// lives for TTL from some moment between call and return. Errors: ErrSessionLost, ErrUnavailable.
	KeepAlive(ctx context.Context) error
	// Commit does all ops, or none where a guard fails; no key may occur twice in ops. It returns the commit's revision, which is the
	// create-revision of keys that it made. Errors: ErrConflict, ErrSessionLost,
	// ErrTooLarge, and ErrUnavailable, after which the commit may or may not have been done, and may
	// still be: but never after a later commit of the same Store.
	Commit(ctx context.Context, guards []Guard, ops []Op) (Revision, error)
	// Watch calls see with a batch for all keys that begin with prefix, then with each further batch, until ctx ends,
	// whose cause it returns, or the session is lost (ErrSessionLost), or see returns an error, which it returns. It rides out
	// interruptions, and what it then cannot tell as changes it tells as a Resync. see is called by one goroutine at a time;
	// while it runs, changes are gathered.
	Watch(ctx context.Context, prefix string, see func(Batch) error) error
	// Lost is closed when the session is known to be lost: it has been ended, or its store is gone for good. A silent
	// network alone does not close it. Err then says why.
	Lost() <-chan struct{}
	// Err is nil until Lost is closed; then it wraps ErrSessionLost or ErrUnavailable.
	Err() error
	// Close ends the session, so that its keys vanish at once, and gives back what the client holds. It waits until the store has
	// heard of it, or ctx ends.
	Close(ctx context.Context) error
}

// MaxOps is the number of ops a commit may have in every store (etcd's default limit).
const MaxOps = 128

// MaxCommit is the number of bytes, keys and values together, that a commit may have in every store.
const MaxCommit = 1 << 20

// Errors that callers tell apart.
var (
	ErrConflict    = errors.New("coordination store: a guard failed")
	ErrSessionLost = errors.New("coordination store: the session is lost")
	ErrUnavailable = errors.New("coordination store: not available")
	ErrTooLarge    = errors.New("coordination store: the commit is too large")
)

// CheckCommit returns ErrTooLarge, or what else is wrong with a commit in any store.
func CheckCommit(guards []Guard, ops []Op) error {
	size := 0
	seen := make(map[string]bool, len(ops))
	for _, op := range ops {
		if op.Key == "" || seen[op.Key] {
			return fmt.Errorf("coordination store: key %q is empty or twice in a commit", op.Key)
		}
		seen[op.Key] = true
		size += len(op.Key) + len(op.Value)
	}
	if len(ops) > MaxOps || len(guards) > MaxOps || size > MaxCommit {
		return fmt.Errorf("%w: %d ops, %d guards, %d bytes", ErrTooLarge, len(ops), len(guards), size)
	}
	return nil
}
