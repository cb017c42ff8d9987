package rounds

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// simStore is a model of a coordination store: one linear history, sessions that expire, and watches.
type simStore struct {
	w        *world
	actor    *actor
	up       bool
	clock    simClock
	rev      coord.Revision
	keys     map[string]*simKey
	sessions map[coord.SessionID]*simSession
	all      map[coord.SessionID]*simSession // including ended sessions
	watches  []*simWatch
	skipped  time.Duration // sum of pauses, which extend all sessions
	local    *simSession   // session of the leader in the store's process
	term     *term
	restarts int
	instance int          // number of stores that this one has replaced
	fresh    StoreHistory // what its leaders know of earlier stores
	simKeeper
}

type simKey struct {
	key     string
	value   any
	create  coord.Revision
	changed coord.Revision
	owner   *simSession
	ttl     time.Duration
}

type simSession struct {
	id             coord.SessionID
	node           *simNode // nil for the store's own session
	conn           *simConn
	ends           time.Duration // when it expires, on the store's clock without pauses
	due            bool          // its timer is set
	instance       int           // of the store
	opened         time.Duration
	ended          bool
	abandonedCalls int // agentProc.abandonedCalls at the newest commit; a commit with a smaller one comes too late
}

type simWatch struct {
	prefix  string
	session *simSession
	store   *simStore
	see     func(simBatch)
	resync  bool
	pending []simChange
	flush   bool // a delivery is scheduled
	closed  bool
}

// simChange is a coord.Event. Its value is encoded only for some seeds.
type simChange struct {
	key     string
	value   any
	create  coord.Revision
	deleted bool
}

type simBatch struct {
	revision coord.Revision
	resync   bool
	changes  []simChange
}

type simOp struct {
	key   string
	value any
	del   bool
	owned bool
	ttl   time.Duration
}

func (w *world) newStore() *simStore {
	s := &simStore{
		w: w, clock: w.newClock(), keys: map[string]*simKey{}, sessions: map[coord.SessionID]*simSession{},
		all: map[coord.SessionID]*simSession{}, up: true,
	}
	s.actor = &actor{w: w}
	return s
}

func (s *simStore) time() time.Duration { return s.clock.read(s.w.now) - s.skipped }

// open opens a session.
func (s *simStore) open(n *simNode, c *simConn) *simSession {
	s.w.sessions++
	ses := &simSession{
		id: coord.SessionID(fmt.Sprintf("%02x-%d", s.w.rng.IntN(256), s.w.sessions)), node: n, conn: c,
		instance: s.instance, opened: s.w.now,
	}
	s.sessions[ses.id], s.all[ses.id] = ses, ses
	if n != nil {
		s.keep(bucketSessions, string(ses.id), ses)
		s.keepAlive(ses)
	}
	return ses
}

func (s *simStore) keepAlive(ses *simSession) {
	s.setEnd(ses, s.time()+s.w.cfg.ttl)
}

func (s *simStore) setEnd(ses *simSession, at time.Duration) {
	sooner := at < ses.ends
	ses.ends = at
	if !ses.due || sooner {
		ses.due = true
		s.actor.timer(s.clock.when(at+s.skipped), func() { s.expire(ses) })
	}
}

// expire ends a session whose TTL has passed.
func (s *simStore) expire(ses *simSession) {
	switch {
	case ses.ended || !s.up:
	case s.time() >= ses.ends:
		s.end(ses, "it has expired")
	default:
		s.actor.timer(s.clock.when(ses.ends+s.skipped), func() { s.expire(ses) })
	}
}

// end ends a session and deletes its keys.
func (s *simStore) end(ses *simSession, why string) {
	if ses.ended {
		return
	}
	ses.ended = true
	delete(s.sessions, ses.id)
	if ses.node != nil {
		s.w.logf("store: session %s of %s ends: %s", ses.id, ses.node.name, why)
		s.keep(bucketSessions, string(ses.id), nil)
		s.note(func() { s.w.check.sessionEnded(ses) })
	}
	var mine []*simKey
	for _, k := range s.keys {
		if k.owner == ses {
			mine = append(mine, k)
		}
	}
	slices.SortFunc(mine, func(a, b *simKey) int { return strings.Compare(a.key, b.key) })
	if len(mine) > 0 {
		s.rev++
	}
	for _, k := range mine {
		delete(s.keys, k.key)
		s.keep(bucketKeys, k.key, nil)
		s.notify(simChange{key: k.key, deleted: true})
	}
	s.watches = slices.DeleteFunc(s.watches, func(x *simWatch) bool { return x.session == ses })
	if c := ses.conn; c != nil {
		s.reply(c, func() { c.node.proc.sessionLost(ses.id, false) })
	}
}

// connectionBroken handles the loss of a connection, which does not end the session.
func (s *simStore) connectionBroken(c *simConn) {
	c.storeGone = true
	for _, ses := range s.sorted() {
		if ses.conn == c {
			s.w.logf("store: the connection of %s (%s) is broken", ses.id, ses.node.name)
			ses.conn = nil
			if s.w.plant.breakEnds {
				s.end(ses, "its connection is broken")
			}
		}
	}
}

func (s *simStore) sorted() []*simSession {
	out := make([]*simSession, 0, len(s.sessions))
	for _, ses := range s.sessions {
		out = append(out, ses)
	}
	slices.SortFunc(out, func(a, b *simSession) int { return cmp.Compare(a.id, b.id) })
	return out
}

// createOf returns the create-revision of a key, 0 if there is none.
func (s *simStore) createOf(key string) coord.Revision {
	if k := s.keys[key]; k != nil {
		return k.create
	}
	return 0
}

// sessionForCommit returns the session of a commit. With etcd, a leader's commit needs no live session.
func (s *simStore) sessionForCommit(id coord.SessionID, by coord.Revision) *simSession {
	if by != 0 && s.w.cfg.etcd {
		return s.all[id]
	}
	return s.sessions[id]
}

// commit executes all ops or none. by is the epoch of the leader that commits, or 0 for an agent.
func (s *simStore) commit(ses *simSession, by coord.Revision, guards []coord.Guard, ops []simOp) (coord.Revision,
	error,
) {
	if ses.ended && by == 0 {
		return 0, coord.ErrSessionLost
	}
	if len(ops) > coord.MaxOps {
		s.w.check.fail("commits", "%d ops in a commit", len(ops))
	}
	for _, g := range guards {
		if s.createOf(g.Key) != g.Create {
			return 0, coord.ErrConflict
		}
	}
	s.w.check.committing(s, by, ops)
	changes := false
	for _, op := range ops {
		changes = changes || !op.del || s.keys[op.key] != nil
	}
	if !changes {
		return s.rev, nil
	}
	s.rev++
	for _, op := range ops {
		s.apply(ses, op)
	}
	s.note(func() { s.w.check.committed(s, ses, by, ops) })
	return s.rev, nil
}

func (s *simStore) apply(ses *simSession, op simOp) {
	k := s.keys[op.key]
	if op.del {
		if k != nil {
			delete(s.keys, op.key)
			s.keep(bucketKeys, op.key, nil)
			s.notify(simChange{key: op.key, deleted: true})
		}
		return
	}
	if k == nil {
		k = &simKey{key: op.key, create: s.rev}
		s.keys[op.key] = k
	}
	k.value, k.owner, k.changed = s.w.encoded(op.value), nil, s.rev
	if op.owned {
		k.owner = ses
	}
	s.keep(bucketKeys, op.key, k)
	s.startTTL(k, op.ttl)
	s.notify(simChange{key: op.key, value: k.value, create: k.create})
}

// startTTL deletes the key after ttl unless it has changed by then. It does nothing if ttl is 0.
func (s *simStore) startTTL(k *simKey, ttl time.Duration) {
	if k.ttl = ttl; ttl == 0 {
		return
	}
	rev, instance := k.changed, s.instance
	s.actor.timer(s.w.now+ttl, func() {
		if k := s.keys[k.key]; k != nil && k.changed == rev && s.instance == instance {
			s.rev++
			s.apply(nil, simOp{key: k.key, del: true})
		}
	})
}

// notify queues a change for every watch of its key.
func (s *simStore) notify(c simChange) {
	for _, x := range s.watches {
		if x.closed || x.store != s || x.resync || !strings.HasPrefix(c.key, x.prefix) {
			continue
		}
		if s.w.cfg.merges {
			x.pending = slices.DeleteFunc(x.pending, func(p simChange) bool { return p.key == c.key })
		}
		x.pending = append(x.pending, c)
		s.schedule(x)
	}
}

func (s *simStore) schedule(x *simWatch) {
	if x.flush {
		return
	}
	x.flush = true
	s.actor.timer(s.w.now+s.w.between(0, s.w.cfg.gather), func() {
		if x.store == s { // otherwise the client watches at another server
			x.flush = false
			s.deliver(x)
		}
	})
}

// deliver sends a watch what it has not received.
func (s *simStore) deliver(x *simWatch) {
	ses := x.session
	if x.closed || x.store != s || ses.ended || ses.node != nil && ses.conn == nil || !x.resync && len(x.pending) == 0 {
		return
	}
	b := simBatch{revision: s.rev, changes: x.pending}
	if x.resync || s.w.chance(s.w.cfg.resyncs) {
		b.resync, b.changes = true, s.list(x.prefix)
	}
	x.resync, x.pending = false, nil
	if s.w.plant.batch != nil && s.w.plant.batch(s.w, x, b) {
		return
	}
	if ses.node == nil {
		s.whenKept(func() { x.see(b) })
		return
	}
	see := func() {
		if !x.closed {
			x.see(b)
		}
	}
	if s.w.plant.slowWatch && s.w.chance(0.1) {
		s.w.sendAside(ses.conn, down, s.w.between(0, 20*time.Second), see)
		return
	}
	s.reply(ses.conn, see)
}

// list returns the keys with a prefix.
func (s *simStore) list(prefix string) []simChange {
	var out []simChange
	for _, k := range s.keys {
		if strings.HasPrefix(k.key, prefix) {
			out = append(out, simChange{key: k.key, value: k.value, create: k.create})
		}
	}
	slices.SortFunc(out, func(a, b simChange) int { return strings.Compare(a.key, b.key) })
	return out
}

// watch starts a watch.
func (s *simStore) watch(ses *simSession, x *simWatch) {
	if ses.ended {
		return
	}
	x.session, x.store, x.resync, x.pending, x.flush = ses, s, true, nil, false
	s.watches = append(s.watches, x)
	s.deliver(x)
}

// resume gives a session a new connection, which replaces the old one.
func (s *simStore) resume(id coord.SessionID, c *simConn) bool {
	ses := s.sessions[id]
	if ses == nil {
		return false
	}
	if older := ses.conn; older != nil {
		older.storeGone = true
		if s.part != nil { // an agent may ask several members at once
			s.w.send(older, down, func() {
				if p := older.node.proc; p != nil {
					p.connectionBroken(older)
				}
			})
		}
	}
	ses.conn = c
	for _, x := range s.watches {
		if x.session == ses {
			x.resync, x.pending = true, nil
			s.schedule(x)
		}
	}
	return true
}
