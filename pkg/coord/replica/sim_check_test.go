package replica

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"
)

// checker knows what must hold in a world.
type checker struct {
	broken  string // the first violation
	seed    maphash.Seed
	leaders map[uint64]ID     // the replica that leads in each term
	states  map[uint64]uint64 // a hash of the contents and members after each index
	acked   []*operation      // the acknowledged writes, in order of acknowledgment
	refused map[string]bool   // writes that certainly did not happen
	enough  int               // how many writes must be acknowledged in the end
	events
}

// events counts what happened in a world.
type events struct {
	writes, confirms, changes, kills, notices, handovers, rotations, takeovers, snapshots, terms, unknown int
}

func (c *checker) init() {
	c.seed = maphash.MakeSeed()
	c.leaders, c.states, c.refused = map[uint64]ID{}, map[uint64]uint64{}, map[string]bool{}
}

func (c *checker) violated(format string, args ...any) {
	if c.broken == "" {
		c.broken = fmt.Sprintf(format, args...)
	}
}

// observe checks a replica after each step.
func (c *checker) observe(w *world, h *host) {
	r := h.r
	if r.failed != nil {
		c.violated("replica %d: %v", r.id, r.failed)
	}
	if h.role.Leading {
		other, known := c.leaders[h.role.Term]
		switch {
		case known && other != r.id:
			c.violated("replicas %d and %d lead in term %d", other, r.id, h.role.Term)
		case !known:
			c.leaders[h.role.Term] = r.id
			c.terms++
			c.mustHave(h, len(c.acked), h.role.Term, "leads")
		}
	}
	applied := 0
	for _, e := range r.log.entries {
		if e.GetIndex() <= r.machine.index {
			applied += sizeOf(e)
		}
	}
	if applied > limitFactor*w.cfg.maxLog {
		c.violated("replica %d has %d bytes of applied entries", r.id, applied)
	}
	if r.machine.index == h.agreed {
		return
	}
	if r.log.index == r.machine.index && r.machine.changed == r.machine.index {
		c.snapshots++
	}
	h.agreed = r.machine.index
	m := r.machine
	sum := maphash.Bytes(c.seed, fmt.Append(nil, m.members.GetVoters(), m.members.GetVotersOutgoing(),
		m.members.GetLearners(), m.term, m.highest))
	for bucket, keys := range m.buckets {
		for key, value := range keys {
			sum ^= maphash.Comparable(c.seed, [3]string{bucket, key, string(value)})
		}
	}
	if other, known := c.states[h.agreed]; known && other != sum {
		c.violated("replica %d differs from another at index %d", r.id, h.agreed)
	}
	c.states[h.agreed] = sum
}

// mustHave checks that a replica has those of the first n acknowledged writes that leaders of earlier terms than the
// given one acknowledged.
func (c *checker) mustHave(h *host, n int, before uint64, when string) {
	for _, op := range c.acked[:n] {
		if op.term < before && h.r.Value("log", op.name) == nil {
			c.violated("replica %d %s in term %d and lacks %s, which was acknowledged in term %d", h.r.id, when,
				h.role.Term, op.name, op.term)
		}
	}
}

func (c *checker) confirmed(_ *world, h *host, needed int) {
	c.confirms++
	c.mustHave(h, needed, math.MaxUint64, "confirms")
}

// settled checks the outcome of a request.
func (c *checker) settled(w *world, h *host, op *operation, s Result) {
	switch {
	case op == nil:
		c.violated("replica %d settles ticket %d, which is not pending", h.r.id, s.Ticket)
	case s.Err == nil && op.kind == 'c' && (!h.role.Leading || h.role.Term != op.term):
		c.violated("replica %d confirms a request of term %d and does not lead in it: %+v", h.r.id, op.term, h.role)
	case errors.Is(s.Err, ErrUnknown):
		c.unknown++
	case s.Err != nil && op.kind == 'w':
		c.refused[op.name] = true
	case s.Err != nil:
	case op.kind == 'c':
		c.confirmed(w, h, op.needed)
	case op.kind == 'w':
		w.logf("replica %d acknowledges %s", h.r.id, op.name)
		c.acked = append(c.acked, op)
		for _, other := range w.hosts { // a leader of a later term has loaded the contents already
			if other.r != nil && other.role.Leading {
				c.mustHave(other, len(c.acked), other.role.Term, "leads")
			}
		}
	}
}

// converged reports whether the group has a leader that serves, and all its members have the same.
func (w *world) converged() bool {
	for _, h := range w.hosts {
		if h.r == nil || !h.role.Leading || len(h.r.writes) > 0 {
			continue
		}
		s := h.r.Status()
		if len(s.Voters) != w.cfg.voters || len(s.Outgoing) > 0 || !s.SurvivesLoss() || len(w.check.acked) < w.check.enough {
			continue
		}
		same := true
		for _, m := range s.Members {
			other := w.host(m.ID)
			same = same && other != nil && other.r.machine.index == s.Applied
		}
		if same {
			return true
		}
	}
	return false
}

// end checks what must hold in the end.
func (c *checker) end(w *world) {
	if c.broken != "" {
		return
	}
	for _, h := range w.hosts {
		if h.r == nil || !h.role.Leading {
			continue
		}
		c.mustHave(h, len(c.acked), math.MaxUint64, "leads in the end")
		for name := range c.refused {
			if h.r.Value("log", name) != nil {
				c.violated("%s was refused and happened", name)
			}
		}
	}
}
