package rounds

import (
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// elector makes an agent the leader if nobody else leads. It watches the leader's key and creates it if it does not
// exist. Each key that it creates starts a term with a new leader.
type elector struct {
	p       *agentProc
	ses     *simSession
	key     coord.Revision // revision of the leader's key; 0 without one
	mine    bool           // the key belongs to this session
	asked   bool           // a commit that creates or deletes the key is under way
	term    *term
	watches []*simWatch
	over    bool
}

func newElector(p *agentProc, ses *simSession) *elector {
	c := &elector{p: p, ses: ses}
	c.watch(KeyLeader, c.keyChanged)
	return c
}

// watch watches keys until the elector stops.
func (c *elector) watch(prefix string, see func(simBatch)) *simWatch {
	x := &simWatch{prefix: prefix, see: func(b simBatch) {
		if !c.over && !c.p.dead {
			see(b)
		}
	}}
	c.watches = append(c.watches, x)
	c.p.watch(x)
	return x
}

// keyChanged records who has the leader's key.
func (c *elector) keyChanged(b simBatch) {
	if b.resync {
		c.key, c.mine = 0, false
	}
	for _, x := range b.changes {
		c.key, c.mine = x.create, x.value == string(c.ses.id)
	}
	if t := c.term; t != nil && c.key != t.epoch && b.revision >= t.epoch {
		c.w().logf("%s notices that epoch %d is over", c.p.node.name, t.epoch)
		c.dropTerm()
	}
	c.campaign()
}

func (c *elector) w() *world { return c.p.w }

// campaign tries to create the leader's key, or deletes its own key if no term belongs to it.
func (c *elector) campaign() {
	switch {
	case c.over || c.asked || c.p.dead || c.p.leaving || c.p.ending || c.term != nil:
	case c.key == 0:
		c.asked = true
		c.p.commit(0, []coord.Guard{{Key: KeyLeader}}, []simOp{{key: KeyLeader, value: string(c.ses.id), owned: true}},
			func(rev coord.Revision, err error) {
				c.asked = false
				switch {
				case c.over:
				case err == nil:
					c.key, c.mine = rev, true
					c.lead(rev)
				default:
					c.retry()
				}
			})
	case c.mine:
		c.asked = true
		c.p.commit(0, []coord.Guard{{Key: KeyLeader, Create: c.key}}, []simOp{{key: KeyLeader, del: true}},
			func(_ coord.Revision, _ error) {
				c.asked = false
				c.retry()
			})
	}
}

// retry campaigns again later, in case the key does not change meanwhile.
func (c *elector) retry() {
	c.p.later(c.w().between(20*time.Millisecond, 100*time.Millisecond), c.campaign)
}

// lead starts a term.
func (c *elector) lead(epoch coord.Revision) {
	w := c.w()
	t := &term{
		w: w, name: c.p.node.name, host: &c.p.node.agent, clock: c.p.node.clock, epoch: epoch,
		commit: c.p.commit,
	}
	t.abort = func() {
		c.dropTerm()
		c.retry()
	}
	t.restart = t.abort // deletes the key
	c.term = t
	w.check.newLeader()
	if c.p.conn == nil {
		t.over = true
		t.abort()
		return
	}
	c.watch(KeyClose, func(b simBatch) {
		if c.term == t && !t.over {
			t.closeBatch(b)
		}
	})
	var all [3][]simChange
	var have [3]bool
	for i, prefix := range []string{PrefixState, PrefixAnswer, PrefixAgent} {
		var x *simWatch
		x = c.watch(prefix, func(b simBatch) {
			switch {
			case c.term != t || t.over:
			case t.l != nil:
				t.batch(b)
			default:
				all[i], have[i] = merge(all[i], b), true
				x.closed = prefix != PrefixAgent
				if have[0] && have[1] && have[2] {
					t.begin(savedStateOf(slices.Concat(all[:]...)))
				}
			}
		})
	}
}

// merge applies a batch to known keys.
func merge(known []simChange, b simBatch) []simChange {
	if b.resync {
		return b.changes
	}
	for _, c := range b.changes {
		known = slices.DeleteFunc(slices.Clone(known), func(k simChange) bool { return k.key == c.key })
		if !c.deleted {
			known = append(known, c)
		}
	}
	return known
}

// dropTerm drops the leader of the term.
func (c *elector) dropTerm() {
	if c.term != nil {
		c.term.over = true
		c.term = nil
	}
	for _, x := range c.watches[1:] {
		x.closed = true
	}
	c.watches = c.watches[:1]
}

// stop ends the elector with its session.
func (c *elector) stop() {
	c.dropTerm()
	c.over = true
	c.watches[0].closed = true
}
