package elastic

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/group"
	"github.com/elasticrun/elasticrun/pkg/coord/replica"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// simPlace is what an agent at the endpoint leaves on its machine.
type simPlace struct {
	group  *earlierGroup
	heirs  *earlierGroup // becomes group if the guard hands over
	marker optionalTime  // when the store had ended at the latest; unset if there was none
	open   bool          // the store's process has not recorded its end
}

// listen makes the agent's process a part of the store at the endpoint.
func (p *agentProc) listen() {
	place := &p.node.place
	newPart(p, p.node.name, 0)
	p.part.earlier, place.heirs = place.group, nil
	now := optionalTime{p.node.local(), true}
	p.part.history = storeHistory{createdAt: now, predecessorEnd: place.marker}
	if place.open {
		p.part.history.predecessorEnd = now
	}
	place.open = true
}

// open opens a session for the agent at the endpoint, as storeMember.open: it makes sure first that there is a group.
func (t *simPart) open(done func(*simConn, *simSession, error)) {
	own := func() { t.p.contact(t.addr, "", memberTimeout, done) }
	if t.knowsGroup(t.now()) {
		own()
		return
	}
	t.forgetGroup()
	former := t.former()
	if former == nil {
		t.found(!t.history.predecessorEnd.set)
		own()
		return
	}
	t.p.contactAll(former.Addrs, func(c *simConn, ses *simSession, errs []error) {
		if ses != nil {
			done(c, ses, nil)
			return
		}
		alive, may := t.mayBeginAnew(t.now(), former, errs)
		t.w.logf("%s has asked %v and %d others: %v may be alive, of at least %d: %v", t.addr, former.Addrs, former.Others, alive,
			former.Min, errs)
		soon := t.w.plant.noFresh && len(alive)+former.Others+1 < former.Min
		if may = may || t.w.plant.foundsAnyway || soon; !may {
			done(nil, nil, &coord.DialError{Obstacle: coord.ObstacleElsewhere})
			return
		}
		t.w.logf("%s begins a new store in place of that of %v, of which %v may be alive", t.addr, former.Addrs, alive)
		t.w.check.groups.anew++
		t.abandon()
		t.announcedTo = former.Addrs
		t.beginAnew()
		now := optionalTime{t.p.node.local(), true}
		t.history = storeHistory{createdAt: now, predecessorEnd: now}
		if t.w.plant.noFresh {
			t.history = storeHistory{}
		}
		t.found(false)
		own()
	})
}

// forget is storeMember.forget. The agent may have no part in the store.
func (t *simPart) forget() {
	if t != nil {
		t.forgetGroup()
		t.heardOf = time.Time{}
	}
}

// forgetGroup is group.Member.ForgetGroup.
func (t *simPart) forgetGroup() {
	if t.r == nil {
		t.referral = ""
	}
}

// found founds a group.
func (t *simPart) found(blind bool) {
	if t.r != nil {
		return
	}
	w := t.w
	g := &simGroup{instance: len(w.groups)}
	g.blind = g.instance > 0 && blind
	w.groups = append(w.groups, g)
	w.logf("%s founds group %d", t.addr, g.instance)
	t.founded, t.leaving = true, false
	t.become(g, 1, true)
	if _, err := t.r.Write([]replica.Edit{{
		Bucket: bucketMembers, Key: strconv.Itoa(1), Value: []byte(t.addr),
	}}); err != nil {
		panic(err)
	}
	t.flush()
}

// announce announces the group twice a second.
func (t *simPart) announce(s replica.Status) {
	if !s.Leading || t.ticks%5 != 0 {
		return
	}
	its, g, from := t.own(), t.group, t.addr
	for _, addr := range append(slices.Clone(t.announcedTo), t.w.nodes[0].name) {
		if slices.ContainsFunc(s.All(), func(id replica.ID) bool { return t.addrOf(id) == addr }) {
			continue
		}
		t.frame(addr, func(to *simPart) { to.hear(g, group.Announcement{Addr: from}, its) })
	}
}

// hear handles the announcement of a group, as storeMember.consider.
func (t *simPart) hear(g *simGroup, other group.Announcement, its standing) {
	if t.r != nil && t.group == g || t.w.plant.deaf {
		return
	}
	other.Instance = strconv.Itoa(g.instance)
	session := ""
	if t.p.session != "" {
		session = strconv.Itoa(t.p.instance)
	}
	does, news := t.judge(t.now(), other, its, session)
	if news {
		t.w.logf("%s hears of group %d at %s, and does %d", t.addr, g.instance, other.Addr, does)
	}
	switch does {
	case yields:
		t.yield(g, other, its)
	case notifies:
		mine, at, as := t.group, cmp.Or(t.status.Leader, t.referral), t.standing()
		if at != "" && at != other.Addr {
			t.frame(other.Addr, func(to *simPart) { to.hear(mine, group.Announcement{Addr: at, Relayed: true}, as) })
		}
	}
}

// yield gives up the process's group for another one, as storeMember.follow.
func (t *simPart) yield(g *simGroup, other group.Announcement, as standing) {
	if t.r == nil || t.group != g {
		if t.r != nil {
			t.w.check.groups.yields++
			t.abandon()
		}
		t.group, t.referral = g, other.Addr
	}
	t.follow(t.now(), other, as)
}

// yieldToSession does that for the group in which the agent has got a session, as storeMember.followClient.
func (t *simPart) yieldToSession(g *simGroup, addr string) {
	other, as := group.Announcement{Addr: addr, Instance: strconv.Itoa(g.instance)}, standing{Index: notAtEndpoint}
	if t.followed.Instance == other.Instance {
		as = t.followedAs
	}
	t.yield(g, other, as)
}

// decided records what the leader of the rendezvous has decided, as storeMember.decided and leaderDriver.lead. It
// returns false if the leader must not write that, and else the writes that it makes too.
func (t *simPart) decided(term *term) (writes []write, may bool) {
	l := term.l
	if !t.status.Leading {
		return nil, true
	}
	t.invited, t.acknowledged, t.deserted = l.storeCandidates(), l.acknowledged(), l.allLeave()
	t.know(addrsOf(t.invited), l.staying()-len(t.invited))
	if t.yielding {
		return nil, false
	}
	t.hasRound = t.hasRound || l.hasRound
	now := storeAddrs{
		Addrs: t.status.Voters, Candidates: addrsOf(t.invited), Others: t.others, SurvivesLoss: t.status.SurvivesLoss,
		HasRound: t.hasRound,
	}
	if !now.equal(term.published) {
		term.published = now
		writes = append(writes, write{key: keyStore, value: now})
	}
	return writes, true
}

// know records who can go on without this process.
func (t *simPart) know(addrs []string, others int) {
	g, mayGoOn := t.setKnown(addrs, others)
	if g == nil {
		return
	}
	if t.alone {
		t.p.node.place.heirs = g
	}
	if mayGoOn && !t.w.plant.noFile {
		t.p.node.place.group = g
		t.w.logf("%s records %v and %d others", t.addr, g.Addrs, g.Others)
	}
}

// storeMoved handles a change of where the store may be.
func (p *agentProc) storeMoved(b simBatch) {
	for _, c := range b.changes {
		at, ok := c.value.(storeAddrs)
		if !ok || p.dead {
			continue
		}
		p.setAddrs(at.reachable())
		if t := p.part; t != nil {
			t.know(append(slices.Clone(at.Candidates), at.Addrs...), at.Others)
			t.hasRound = t.hasRound || at.HasRound
		}
	}
}

// joinStore makes the agent a candidate for the group.
func (p *agentProc) joinStore() {
	if p.part == nil {
		newPart(p, p.node.name+"/"+strconv.Itoa(p.pid), notAtEndpoint)
	}
	p.m.setStoreMember(p.part.addr)
}

// leave ends the process's part in the store, and then calls done, as storeMember.close.
func (t *simPart) leave(over bool, done func()) {
	t.closing, t.leaving = true, !over
	if g := t.heirs(); g != nil && !over && !t.w.plant.noFile {
		t.p.node.place.group = g
	}
	began := t.ticks
	end := func(ended bool) bool {
		if place := &t.p.node.place; t.atEndpoint() {
			if ended {
				place.group = nil
			}
			place.open, place.marker = false, optionalTime{t.p.node.local(), !ended}
		}
		done()
		return true
	}
	t.ending = func() bool {
		waited := time.Duration(t.ticks-began) * simTick
		lost := t.status.Leader == "" && t.now().Sub(t.leaderless) >= lostLeaderTimeout
		switch {
		case t.r == nil:
			return end(over)
		case t.status.Leading && (over && t.acknowledged || !over && t.deserted):
			t.dissolve()
			return end(true)
		case lost, over && waited >= t.w.cfg.job.JoinTimeout, !over && (waited >= leaveTimeout || t.isLast()):
			return end(false)
		}
		return false
	}
}

// dissolve ends the group.
func (t *simPart) dissolve() {
	t.w.logf("%s dissolves group %d", t.addr, t.group.instance)
	g := t.group
	if s := t.server; s != nil {
		for _, ses := range s.sorted() {
			if c := ses.conn; c != nil {
				t.w.send(c, down, func() { c.node.proc.storeEnded(ses.id) })
			}
		}
	}
	for _, id := range t.r.Status().All() {
		if addr := t.addrOf(id); id != t.id {
			t.frame(addr, func(to *simPart) {
				if to.group == g && to.id == id {
					to.abandon()
				}
			})
		}
	}
	t.abandon()
}

// storeEnded handles the notice that the store has ended for good.
func (p *agentProc) storeEnded(id coord.SessionID) {
	if p == nil || p.dead || p.session != id {
		return
	}
	p.w.logf("%s learns that the store has ended", p.node.name)
	p.m.storeLost(p.node.local())
	if p.m.over == nil {
		p.m.over = &ending{err: rdzv.ErrConnection}
	}
	p.node.gone = true
	p.pump()
}
