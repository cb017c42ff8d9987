package elastic

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// simRoundID tells rounds of different stores apart, which count alike.
type simRoundID struct{ instance, round int }

// replaceStore kills a store that has all in memory. After a while there is an empty one in its place. Sometimes a marker tells that it has a
// predecessor.
func replaceStore(w *world) {
	s := w.store
	if !s.goDown() {
		return
	}
	w.after(w.between(20*time.Millisecond, w.cfg.ttl), func() {
		s.replace(w.chance(0.5))
	})
}

// replace begins an empty store.
func (s *simStore) replace(marked bool) {
	s.up = true
	s.instance++
	s.w.logf("another store, %d, is there; it knows of its predecessor: %v", s.instance, marked)
	for _, ses := range s.sorted() {
		ses.ended = true
	}
	s.sessions, s.keys, s.watches, s.rev = map[coord.SessionID]*simSession{}, map[string]*simKey{}, nil, 0
	born := optionalTime{s.clock.read(s.w.now), true}
	s.fresh = storeHistory{createdAt: born}
	if marked {
		s.fresh.predecessorEnd = born
	}
	s.w.check.replaced()
	s.lead()
}

// replaced takes note that there is another store.
func (c *checker) replaced() {
	if c.outcome != nil {
		c.past = append(c.past, *c.outcome)
	}
	c.outcome, c.current, c.charges, c.last = nil, nil, nil, -1
	c.earlier, c.waited = false, false
}

// foresee says whether a round may meet workers of an earlier store. Where nothing is known of one, all nodes that come at once may begin.
func (c *checker) foresee(rd *simRound) {
	s, job := c.w.store, &c.w.cfg.job
	rd.instance = s.instance
	if n := len(rd.record.Members); rd.record.Round == 0 {
		c.waited = s.instance == 0 || s.fresh.predecessorEnd.set || n < job.Max && (job.Expected == 0 || n < job.Expected)
	}
	rd.guarded = c.waited || c.earlier
}

// later is the one of two rounds that was decided by the later store.
func later(a, b *simRound) *simRound {
	if a.instance > b.instance {
		return a
	}
	return b
}
