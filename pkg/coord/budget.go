package coord

import (
	"errors"
	"fmt"
)

// ErrFull says that the store has no memory left for what was asked. What is in the store stays, and an owner may still
// replace its keys by values that are no longer.
var ErrFull = errors.New("coordination store: it is full")

// What the parts of a store are taken to cost beside their text, in bytes. The figures are measured, and rounded up.
const (
	entrySize   = 256      // a key: its entry, and its places in maps and in the index
	sessionSize = 8 << 10  // a client's session, with its connection and the goroutine that serves it
	localSize   = 8 << 10  // a session in the server's process
	watchSize   = 512      // a watch
	changeSize  = 128      // a key of which a watch is still to be told
	editSize    = 128      // a write that the disk does not have yet
	eventSize   = 96       // an event on its way to a client
	pendingSize = 16 << 10 // a connection that has no session yet
	defaultMax  = 1 << 30  // of ServerOptions.MaxMemory
)

// budget bounds what a core keeps. One half of the memory is for that, the other for what is under way. Its zero value
// has no bounds.
type budget struct {
	limit int64 // of stored; 0: none
	// stored is what keys, sessions and watches take.
	stored int64
	// lasting is the part of stored that no session owns: nothing frees it but a delete or a TTL.
	lasting int64
	// changes is the number of keys of which watches are still to be told.
	changes    int
	maxChanges int // 0: no limit
}

// limitMemory sets the bounds for a store that may take about that many bytes in all.
func (b *budget) limitMemory(all int64) {
	b.limit = all / 2
	b.maxChanges = int(all / 8 / changeSize)
}

// size is what e takes.
func (e *entry) size() int64 { return int64(entrySize + len(e.key) + len(e.value)) }

// lasts tells whether e outlives the session that has put it.
func (e *entry) lasts() bool { return e.owner == nil }

// count takes e into account, or with sign -1 out of it.
func (b *budget) count(e *entry, sign int64) {
	b.stored += sign * e.size()
	if e.lasts() {
		b.lasting += sign * e.size()
	}
}

// sizeOf is what a session takes.
func sessionCost(s *session) int64 {
	if s.ttl == 0 {
		return localSize
	}
	return sessionSize
}

// claim returns ErrFull if n more bytes cannot be stored. A part of the limit is kept back for running jobs, whose
// leader and keys must not fail because of newcomers: with reserve, n must fit without that part.
func (b *budget) claim(n int64, reserve bool) error {
	limit := b.limit
	if reserve {
		limit -= limit / 8
	}
	if b.limit == 0 || n <= 0 || b.stored+n <= limit {
		return nil
	}
	return fmt.Errorf("%w: it has %d bytes, may have %d, and %d more were asked for", ErrFull, b.stored, limit, n)
}

// A session is taken to have a few watches: an agent that resumes it needs them again at once, however full the store is.
const (
	prepaidWatches = 4
	prepaidPrefix  = 256 // bytes
)

// prepaid tells whether the next watch of c, of that prefix, was counted with its session. server.mu is held.
func (c *conn) prepaid(prefix string) bool {
	return len(c.watches) < prepaidWatches && len(prefix) <= prepaidPrefix
}

// prepay counts w no more: it was counted with its session.
func (c *core) prepay(w *watcher) {
	c.budget.stored -= w.cost
	w.cost = 0
}

// claimCommit returns ErrFull if there is no room for what ops of s would add.
func (c *core) claimCommit(s *session, ops []Op) error {
	if c.budget.limit == 0 {
		return nil
	}
	var grows, lasting int64
	creates := false
	for _, op := range ops {
		e := c.entries[op.Key]
		if e != nil {
			grows -= e.size()
			if e.lasts() {
				lasting -= e.size()
			}
		}
		if op.Delete {
			continue
		}
		creates = creates || e == nil
		size := int64(entrySize + len(op.Key) + len(op.Value))
		grows += size
		if !op.Owned {
			lasting += size
		}
	}
	leads := s.ttl == 0
	if most := c.budget.limit / 4; !leads && lasting > 0 && c.budget.lasting+lasting > most {
		return fmt.Errorf("%w: keys that outlive their session have %d bytes, may have %d, and %d more were asked for",
			ErrFull, c.budget.lasting, most, lasting)
	}
	return c.budget.claim(grows, creates && !leads)
}
