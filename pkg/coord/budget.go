package coord

import (
	"errors"
	"fmt"
)

// ErrFull means that the store has no memory left for a request. Existing keys stay. An owner may still replace its
// values with values of at most the same size.
var ErrFull = errors.New("coordination store: it is full")

// The cost in bytes of each object in addition to its text. The figures are measured and rounded up.
const (
	entrySize              = 256      // a key: its entry and its places in the maps and in the index
	sessionSize            = 12 << 10 // a client's session with its connection, TLS and goroutine
	localSize              = 8 << 10  // a session in the server's process
	watchSize              = 512      // a watch
	changeSize             = 128      // a key that a watch has not delivered yet
	editSize               = 128      // a write that is not on the disk yet
	eventSize              = 96       // an event that is being sent to a client
	pendingSize            = 24 << 10 // a connection without a session, above all in the TLS handshake
	pendingCertificateSize = 72 << 10 // the same if the store requires a certificate
	defaultMax             = 1 << 30  // default of ServerOptions.MaxMemory
)

// budget limits the memory of a core. Half of the store's memory is for the core, the other half for requests and
// answers in flight. The zero value has no limits.
type budget struct {
	limit int64 // maximum of stored; 0 means no limit
	// stored is the size of all keys, sessions and watches.
	stored int64
	// lasting is the part of stored that no session owns. Only a delete or a TTL frees it.
	lasting int64
	// changes is the number of undelivered keys of all watches.
	changes    int
	maxChanges int // 0 means no limit
}

// limitMemory sets the limits of a store that may use about the given number of bytes.
func (b *budget) limitMemory(all int64) {
	b.limit = all / 2
	b.maxChanges = int(all / 8 / changeSize)
}

// size returns the bytes that the budget counts for e.
func (e *entry) size() int64 { return int64(entrySize + len(e.key) + len(e.value)) }

// lasts reports whether e outlives the session that wrote it.
func (e *entry) lasts() bool { return e.owner == nil }

// count adds e to the budget, or with sign -1 subtracts it.
func (b *budget) count(e *entry, sign int64) {
	b.stored += sign * e.size()
	if e.lasts() {
		b.lasting += sign * e.size()
	}
}

// sessionCost returns the bytes that the budget counts for s.
func sessionCost(s *session) int64 {
	if s.ttl == 0 {
		return localSize
	}
	return sessionSize
}

// claim returns ErrFull if n more bytes do not fit. With reserve, one eighth of the limit stays free for running jobs:
// newcomers must not make their leader or their keys fail.
func (b *budget) claim(n int64, reserve bool) error {
	limit := b.limit
	if reserve {
		limit -= limit / 8
	}
	if b.limit == 0 || n <= 0 || b.stored+n <= limit {
		return nil
	}
	return fmt.Errorf("%w: it uses %d of %d bytes, and the request needs %d more", ErrFull, b.stored, limit, n)
}

// The cost of a session includes a few watches. An agent that resumes its session must get them back at once, even if
// the store is full.
const (
	prepaidWatches = 4
	prepaidPrefix  = 256 // bytes
)

// maxWatches is how many watches a session may have. Each makes commits to its keys slower.
const maxWatches = 128

// prepaid reports whether the cost of c's session already includes its next watch, which has that prefix. server.mu is
// held.
func (c *conn) prepaid(prefix string) bool {
	return len(c.watches) < prepaidWatches && len(prefix) <= prepaidPrefix
}

// prepay removes w from the budget because the cost of its session includes it.
func (c *core) prepay(w *watcher) {
	c.budget.stored -= w.cost
	w.cost = 0
}

// claimCommit returns ErrFull if the store has no room for the data that the ops of s would add.
func (c *core) claimCommit(s *session, ops []Op) error {
	if c.budget.limit == 0 {
		return nil
	}
	var added, lasting int64
	creates := false
	for _, op := range ops {
		e := c.entries[op.Key]
		if e != nil {
			added -= e.size()
			if e.lasts() {
				lasting -= e.size()
			}
		}
		if op.Delete {
			continue
		}
		creates = creates || e == nil
		size := int64(entrySize + len(op.Key) + len(op.Value))
		added += size
		if !op.Owned {
			lasting += size
		}
	}
	local := s.ttl == 0
	if limit := c.budget.limit / 4; !local && lasting > 0 && c.budget.lasting+lasting > limit {
		return fmt.Errorf("%w: keys without a session use %d of %d bytes, and the request needs %d more",
			ErrFull, c.budget.lasting, limit, lasting)
	}
	return c.budget.claim(added, creates && !local)
}
