package coord

import (
	"crypto/subtle"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// core is the state of the store without network, clock or lock. Only one goroutine may call it at a time. Times come
// from any monotonic clock. The cost of a commit is proportional to its ops and to the watchers of their keys; a
// keep-alive costs O(1).
type core struct {
	revision   Revision
	entries    map[string]*entry
	order      index // the keys of entries
	sessions   map[SessionID]*session
	timers     timers
	watches    watches
	budget     budget
	totalPause time.Duration // the sum of all pauses; the core's clock stands still during a pause
	journal    *journal      // records the changes that must survive the process; nil for a store in memory
}

// entry is a key with its value. Each put modifies it in place.
type entry struct {
	key    string
	value  []byte
	create Revision
	owner  *session // nil if no session owns the key
	ttl    time.Duration
	timer  *timer // deletes the key; nil without a TTL
}

func (e *entry) event() Event { return Event{Key: e.key, Value: e.value, Create: e.create} }

// session is one client's proof of life. It ends TTL after the last keep-alive, or when its client ends it. The state
// of the connection does not matter: a connection may break while its client lives.
type session struct {
	id    SessionID
	token string        // authenticates a client that resumes the session
	ttl   time.Duration // 0: the session does not expire
	timer timer         // expires TTL after the last keep-alive, in core time
	keys  map[string]*entry
	known bool // role and runID are set; false for a session from the disk until its client resumes it
	role  Role
	runID string     // the run of the session's client; empty if unknown or any
	from  netip.Addr // of the client that began or resumed it last; invalid if unknown
	ended bool
}

func newCore() *core {
	return &core{entries: map[string]*entry{}, sessions: map[SessionID]*session{}}
}

// coreTime converts a time of the caller's clock to core time.
func (c *core) coreTime(now time.Duration) time.Duration { return now - c.totalPause }

// addPause extends every session and TTL by d, during which the store did not run and could not receive a keep-alive.
func (c *core) addPause(d time.Duration) { c.totalPause += d }

// openSession begins a session. The caller must pass an id and a token that were never used before.
func (c *core) openSession(id SessionID, token string, ttl, now time.Duration) *session {
	s := &session{id: id, token: token, ttl: ttl}
	s.timer = timer{index: -1, session: s}
	c.sessions[id] = s
	c.budget.stored += sessionCost(s)
	c.keepAlive(s, now)
	c.journal.session(s)
	return s
}

// keepAlive restarts the TTL of s.
func (c *core) keepAlive(s *session, now time.Duration) {
	if s.ttl == 0 || s.ended {
		return
	}
	c.timers.set(&s.timer, c.coreTime(now)+s.ttl)
}

// resume returns the session with that id if token is its token, or nil.
func (c *core) resume(id SessionID, token string) *session {
	s := c.sessions[id]
	if s == nil || s.ttl == 0 || subtle.ConstantTimeCompare([]byte(s.token), []byte(token)) != 1 {
		return nil
	}
	return s
}

// endSession ends s and deletes all its keys in one commit.
func (c *core) endSession(s *session) {
	if s.ended {
		return
	}
	s.ended = true
	c.timers.remove(&s.timer)
	delete(c.sessions, s.id)
	c.budget.stored -= sessionCost(s)
	c.journal.sessionEnd(s)
	if len(s.keys) == 0 {
		return
	}
	c.revision++
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		c.remove(s.keys[key])
	}
	c.journal.revision(c.revision)
}

// expire ends the sessions and deletes the keys whose TTL has expired. It returns the ended sessions.
func (c *core) expire(now time.Duration) []*session {
	var ended []*session
	for {
		t := c.timers.expired(c.coreTime(now))
		switch {
		case t == nil:
			return ended
		case t.session != nil:
			c.endSession(t.session)
			ended = append(ended, t.session)
		default:
			c.revision++
			c.remove(t.entry)
			c.journal.revision(c.revision)
		}
	}
}

// nextExpiry returns the time of the earliest timer; ok is false if there is no timer. The timer may have moved by
// then.
func (c *core) nextExpiry() (at time.Duration, ok bool) {
	at, ok = c.timers.nextDue()
	return at + c.totalPause, ok
}

// commit applies all ops or none. It keeps the values without copying them.
func (c *core) commit(s *session, guards []Guard, ops []Op, now time.Duration) (Revision, error) {
	if err := CheckCommit(guards, ops); err != nil {
		return 0, err
	}
	if s.ended {
		return 0, ErrSessionLost
	}
	for _, g := range guards {
		var create Revision
		if e := c.entries[g.Key]; e != nil {
			create = e.create
		}
		if create != g.Create {
			return 0, fmt.Errorf("%w: key %q has create-revision %d, not %d", ErrConflict, g.Key, create, g.Create)
		}
	}
	if !slices.ContainsFunc(ops, func(op Op) bool { return !op.Delete || c.entries[op.Key] != nil }) {
		return c.revision, nil // nothing changes
	}
	if err := c.claimCommit(s, ops); err != nil {
		return 0, err
	}
	c.revision++
	for _, op := range ops {
		if !op.Delete {
			c.put(s, op, now)
		} else if e := c.entries[op.Key]; e != nil {
			c.remove(e)
		}
	}
	c.journal.revision(c.revision)
	return c.revision, nil
}

// put sets a key, as part of the commit of c.revision.
func (c *core) put(s *session, op Op, now time.Duration) {
	e, existed := c.entries[op.Key]
	if !existed {
		e = &entry{key: op.Key, create: c.revision}
		c.entries[op.Key] = e
		c.order.add(op.Key)
	} else {
		c.budget.count(e, -1)
	}
	e.value = op.Value
	var owner *session
	if op.Owned {
		owner = s
	}
	c.setOwner(e, owner)
	c.budget.count(e, 1)
	if e.ttl = op.TTL; op.Owned || e.ttl < 0 {
		e.ttl = 0
	}
	c.startTTL(e, now)
	c.watches.notify(&c.budget, op.Key, existed, true, c.revision)
	c.journal.put(e)
}

// setOwner makes owner the owner of e. A nil owner makes e a key without owner.
func (c *core) setOwner(e *entry, owner *session) {
	if e.owner == owner {
		return
	}
	if e.owner != nil {
		delete(e.owner.keys, e.key)
	}
	if e.owner = owner; owner == nil {
		return
	}
	if owner.keys == nil {
		owner.keys = map[string]*entry{}
	}
	owner.keys[e.key] = e
}

// startTTL restarts the TTL of e, or stops its timer if it has none.
func (c *core) startTTL(e *entry, now time.Duration) {
	if e.ttl == 0 {
		if e.timer != nil {
			c.timers.remove(e.timer)
			e.timer = nil
		}
		return
	}
	if e.timer == nil {
		e.timer = &timer{index: -1, entry: e}
	}
	c.timers.set(e.timer, c.coreTime(now)+min(e.ttl, maxTTL))
}

// maxTTL is practically forever, but small enough to be added to a time.
const maxTTL = 100 * 365 * 24 * time.Hour

// remove deletes e, as part of the commit of c.revision.
func (c *core) remove(e *entry) {
	c.budget.count(e, -1)
	c.setOwner(e, nil)
	if e.timer != nil {
		c.timers.remove(e.timer)
	}
	delete(c.entries, e.key)
	c.order.remove(e.key)
	c.watches.notify(&c.budget, e.key, true, false, c.revision)
	c.journal.remove(e.key)
}
