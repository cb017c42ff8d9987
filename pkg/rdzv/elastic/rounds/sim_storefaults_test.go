package rounds

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// freezeStore pauses the store's process.
func freezeStore(w *world) {
	s := w.store
	if s.actor.frozen || !s.up {
		return
	}
	d := w.outage()
	w.logf("the store is paused for %v", d)
	w.check.forgive(nil, "store frozen")
	s.pause(d)
	s.actor.freeze(d)
}

// pause extends all sessions by a pause of d that begins now. It must be called before the freeze: then the sessions
// are extended before the store runs again.
func (s *simStore) pause(d time.Duration) {
	before := s.clock.read(s.w.now)
	s.w.after(d, func() { s.skipped += s.clock.read(s.w.now) - before })
}

// extendSessions extends the sessions of the server in a node's agent by a pause.
func (w *world) extendSessions(n *simNode, d time.Duration) {
	if p := n.proc; p != nil && p.part != nil && p.part.server != nil {
		p.part.server.pause(d)
	}
}

// restartStore restarts a store that keeps its data on disk.
func restartStore(w *world) {
	if w.store.goDown() {
		w.after(w.between(20*time.Millisecond, w.cfg.ttl), w.store.restart)
	}
}

// goDown ends the store's process. It returns false if the process cannot end now.
func (s *simStore) goDown() bool {
	w := s.w
	if s.actor.frozen || !s.up {
		return false
	}
	w.logf("the store is down")
	w.check.forgive(nil, "store down")
	s.stop()
	return true
}

// stop ends the server and breaks its connections.
func (s *simStore) stop() {
	w := s.w
	s.up = false
	s.term.over = true
	for _, ses := range s.sorted() {
		c, n := ses.conn, ses.node
		if c == nil {
			continue
		}
		c.broken, c.storeGone = true, true
		if at, _ := c.cutAt(down); n.proc != nil && at == nil {
			p := n.proc
			w.after(w.between(0, 150*time.Millisecond), func() { n.agent.do(false, func() { p.connectionBroken(c) }) })
		}
	}
}

// restart starts the store's process with the data on its disk.
func (s *simStore) restart() {
	s.w.logf("the store is back")
	s.up = true
	s.restarts++
	for _, x := range s.watches {
		x.session, x.flush = nil, false
	}
	s.watches = nil
	s.rev++
	delete(s.keys, KeyLeader)
	for _, ses := range s.sorted() {
		if ses.node == nil {
			ses.ended = true
			delete(s.sessions, ses.id)
			continue
		}
		ses.conn, ses.due = nil, false
		s.keepAlive(ses)
	}
	s.lead()
}

// replaceStore ends a store that keeps its data in memory, and starts an empty one later. In half of the cases a marker
// shows the new store that there was another one.
func replaceStore(w *world) {
	s := w.store
	if !s.goDown() {
		return
	}
	w.after(w.between(20*time.Millisecond, w.cfg.ttl), func() {
		s.replace(w.chance(0.5))
	})
}

// replace starts an empty store.
func (s *simStore) replace(marked bool) {
	s.up = true
	s.instance++
	s.w.logf("store %d replaces the last one; it knows of its predecessor: %v", s.instance, marked)
	for _, ses := range s.sorted() {
		ses.ended = true
	}
	s.sessions, s.keys, s.watches, s.rev = map[coord.SessionID]*simSession{}, map[string]*simKey{}, nil, 0
	born := OptionalTime{s.clock.read(s.w.now), true}
	s.fresh = StoreHistory{createdAt: born}
	if marked {
		s.fresh.predecessorEnd = born
	}
	s.w.check.storeReplaced()
	s.lead()
}
