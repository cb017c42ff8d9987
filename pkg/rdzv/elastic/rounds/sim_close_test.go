package rounds

import (
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// simClose is what the simulator knows of requests to close the run.
type simClose struct {
	asked  map[coord.Revision]bool // the runs, by the create-revisions of their keys state/job/N, that were to be closed
	closed int                     // runs that were closed
	job    coord.Revision          // the current run, by the same revision
}

// requestCloseSoon reads the run and, a moment later, requests its end, as Close does.
func (w *world) requestCloseSoon() {
	key, job := w.store.jobKey()
	if job == nil {
		return
	}
	delay := time.Duration(w.barrier.rng.Int64N(int64(10 * time.Millisecond)))
	if w.barrier.rng.IntN(4) == 0 {
		delay *= 1000
	}
	read := job.create
	w.after(delay, func() { w.store.requestClose(key, read) })
}

// jobKey returns the latest key of the run's parameters; nil if there is none.
func (s *simStore) jobKey() (key string, value *simKey) {
	for k, v := range s.keys {
		if strings.HasPrefix(k, PrefixJob) && (value == nil || CompareNatural(k, key) > 0) {
			key, value = k, v
		}
	}
	return key, value
}

// requestClose commits a request to close the run, unless it has ended.
func (s *simStore) requestClose(key string, run coord.Revision) {
	job := s.keys[key]
	if !s.up || job == nil || job.create != run || s.keys[KeyResult] != nil {
		return
	}
	s.w.logf("somebody closes the run")
	s.rev++
	s.apply(nil, simOp{key: KeyClose, value: CloseRequest{Job: run, By: "outside"}, ttl: CloseRequestTTL})
	s.w.check.close.asked[run] = true
}

// closeBatch keeps requests to close the run for the leader. observeCloses passes them on.
func (t *term) closeBatch(b simBatch) {
	for _, c := range b.changes {
		if r, ok := c.value.(CloseRequest); ok && c.key == KeyClose {
			t.closes = append(t.closes, r)
		}
	}
	t.observeCloses()
}

// observeCloses passes the requests to the leader once the store has its last decisions, as leaderDriver.observeClose.
func (t *term) observeCloses() {
	if t.over || t.l == nil || t.busy || len(t.queue) > 0 || len(t.closes) == 0 {
		return
	}
	for _, r := range t.closes {
		if job := t.w.store.keys[JobKey(t.l.begun)]; job != nil && job.create == r.Job || t.w.plant.staleClose {
			t.l.RequestClose(r.By)
		}
	}
	t.closes = nil
	t.pump()
}

// checkClosed checks a run that was closed.
func (c *checker) checkClosed(by coord.Revision) {
	c.close.closed++
	l := c.term.l
	if n := len(l.round.members); n > 0 && l.round.done == n {
		c.fail("close", "the run was closed although all workers of round %d had exited with 0", l.record.Round)
	}
	for _, p := range l.participants.byID {
		if p.report.Close {
			return
		}
	}
	if job := c.close.job; !c.close.asked[job] {
		c.fail("close", "epoch %d closed run %d, and nobody had asked for that", by, job)
	}
}
