package rounds

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/group"
	"github.com/elasticrun/elasticrun/pkg/coord/replica"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/founding"
)

// simPlace is what an agent at the endpoint leaves on its machine.
type simPlace struct {
	group  *founding.EarlierGroup
	heirs  *founding.EarlierGroup // becomes group if the guard hands over
	marker OptionalTime           // when the store had ended at the latest; unset if there was none
	open   bool                   // the process that had the store last has not recorded its end
}

// listen gives the agent's process a part in the store, at the endpoint.
func (p *agentProc) listen() {
	place := &p.node.place
	newPart(p, p.node.name, 0)
	p.part.Earlier, place.heirs = place.group, nil
	now := OptionalTime{p.node.local(), true}
	p.part.history = StoreHistory{createdAt: now, predecessorEnd: place.marker}
	if place.open {
		p.part.history.predecessorEnd = now
	}
	place.open = true
}

// open opens a session for the agent at the endpoint, as storeMember.open. It first makes sure that there is a group.
func (t *simPart) open(done func(*simConn, *simSession, error)) {
	own := func() { t.p.contact(t.Addr, "", founding.MemberTimeout, done) }
	if t.KnowsGroup(t.now()) {
		own()
		return
	}
	t.forgetGroup()
	former := t.Former()
	if former == nil {
		t.found(!t.history.predecessorEnd.Set)
		own()
		return
	}
	t.p.contactAll(former.Addrs, func(c *simConn, ses *simSession, errs []error) {
		if ses != nil {
			done(c, ses, nil)
			return
		}
		alive, may := t.MayBeginAnew(t.now(), former, errs)
		t.w.logf("%s has asked %v and %d others: %v may be alive, of at least %d: %v", t.Addr, former.Addrs, former.Others, alive,
			former.Min, errs)
		soon := t.w.plant.noFresh && len(alive)+former.Others+1 < former.Min
		if may = may || t.w.plant.foundsAnyway || soon; !may {
			done(nil, nil, &coord.DialError{Obstacle: coord.ObstacleElsewhere})
			return
		}
		t.w.logf("%s begins a new store in place of that of %v, of which %v may be alive", t.Addr, former.Addrs, alive)
		t.w.check.groups.anew++
		t.abandon()
		t.announcedTo = former.Addrs
		t.BeginAnew()
		now := OptionalTime{t.p.node.local(), true}
		t.history = StoreHistory{createdAt: now, predecessorEnd: now}
		if t.w.plant.noFresh {
			t.history = StoreHistory{}
		}
		t.found(false)
		own()
	})
}

// forget is storeMember.forget. t may be nil.
func (t *simPart) forget() {
	if t != nil {
		t.forgetGroup()
		t.HeardOf = time.Time{}
	}
}

// forgetGroup is group.Member.ForgetGroup.
func (t *simPart) forgetGroup() {
	if t.r == nil {
		t.referral = ""
	}
}

// found founds a group. blind says that nothing on this machine shows an earlier store.
func (t *simPart) found(blind bool) {
	if t.r != nil {
		return
	}
	w := t.w
	g := &simGroup{instance: len(w.groups)}
	g.blind = g.instance > 0 && blind
	w.groups = append(w.groups, g)
	w.logf("%s founds group %d", t.Addr, g.instance)
	t.founded, t.leaving = true, false
	t.become(g, 1, true)
	if _, err := t.r.Write([]replica.Edit{{
		Bucket: bucketMembers, Key: strconv.Itoa(1), Value: []byte(t.Addr),
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
	its, g, from := t.Own(), t.group, t.Addr
	for _, addr := range append(slices.Clone(t.announcedTo), t.w.nodes[0].name) {
		if slices.ContainsFunc(s.All(), func(id replica.ID) bool { return t.addrOf(id) == addr }) {
			continue
		}
		t.frame(addr, func(to *simPart) { to.hear(g, group.Announcement{Addr: from}, its) })
	}
}

// hear handles the announcement of a group, as storeMember.consider.
func (t *simPart) hear(g *simGroup, other group.Announcement, its founding.Standing) {
	if t.r != nil && t.group == g || t.w.plant.deaf {
		return
	}
	other.Instance = strconv.Itoa(g.instance)
	session := ""
	if t.p.session != "" {
		session = strconv.Itoa(t.p.instance)
	}
	does, news := t.Judge(t.now(), other, its, session)
	if news {
		t.w.logf("%s hears of group %d at %s, and does %d", t.Addr, g.instance, other.Addr, does)
	}
	switch does {
	case founding.Yields:
		t.yield(g, other, its)
	case founding.Notifies:
		mine, at, as := t.group, cmp.Or(t.Status.Leader, t.referral), t.Standing()
		if at != "" && at != other.Addr {
			t.frame(other.Addr, func(to *simPart) { to.hear(mine, group.Announcement{Addr: at, Relayed: true}, as) })
		}
	}
}

// yield gives up the process's group for another one, as storeMember.follow.
func (t *simPart) yield(g *simGroup, other group.Announcement, as founding.Standing) {
	if t.r == nil || t.group != g {
		if t.r != nil {
			t.w.check.groups.yields++
			t.abandon()
		}
		t.group, t.referral = g, other.Addr
	}
	t.Follow(t.now(), other, as)
}

// yieldToSession yields to the group in which the agent has got a session, as storeMember.followClient.
func (t *simPart) yieldToSession(g *simGroup, addr string) {
	other := group.Announcement{Addr: addr, Instance: strconv.Itoa(g.instance)}
	as := founding.Standing{Index: founding.NotAtEndpoint}
	if t.Followed.Instance == other.Instance {
		as = t.FollowedAs
	}
	t.yield(g, other, as)
}

// decided records what the leader of the rendezvous has decided, as storeMember.decided and leaderDriver.lead. It
// returns further writes for the leader to make. may is false if the leader must not write at all.
func (t *simPart) decided(term *term) (writes []Write, may bool) {
	l := term.l
	if !t.Status.Leading {
		return nil, true
	}
	t.invited, t.acknowledged, t.deserted = l.StoreCandidates(), l.Acknowledged(), l.AllLeave()
	t.know(AddrsOf(t.invited), l.Staying()-len(t.invited))
	if t.Yielding {
		return nil, false
	}
	t.HasRound = t.HasRound || l.hasRound
	now := StoreAddrs{
		Addrs: t.Status.Voters, Candidates: AddrsOf(t.invited), Others: t.Others, SurvivesLoss: t.Status.SurvivesLoss,
		HasRound: t.HasRound,
	}
	if !now.Equal(term.published) {
		term.published = now
		writes = append(writes, Write{Key: KeyStore, Value: now})
	}
	return writes, true
}

// know records who can go on without this process.
func (t *simPart) know(addrs []string, others int) {
	g, mayGoOn := t.SetKnown(addrs, others)
	if g == nil {
		return
	}
	if t.Alone {
		t.p.node.place.heirs = g
	}
	if mayGoOn && !t.w.plant.noFile {
		t.p.node.place.group = g
		t.w.logf("%s records %v and %d others", t.Addr, g.Addrs, g.Others)
	}
}

// storeMoved handles a change of where the store may be.
func (p *agentProc) storeMoved(b simBatch) {
	for _, c := range b.changes {
		at, ok := c.value.(StoreAddrs)
		if !ok || p.dead {
			continue
		}
		p.setAddrs(at.Reachable())
		if t := p.part; t != nil {
			t.know(append(slices.Clone(at.Candidates), at.Addrs...), at.Others)
			t.HasRound = t.HasRound || at.HasRound
		}
	}
}

// joinStore makes the agent a candidate for the group.
func (p *agentProc) joinStore() {
	if p.part == nil {
		newPart(p, p.node.name+"/"+strconv.Itoa(p.pid), founding.NotAtEndpoint)
	}
	p.m.SetStoreMember(p.part.Addr)
}

// leave ends the process's part in the store, and then calls done, as storeMember.close.
func (t *simPart) leave(over bool, done func()) {
	t.Closing, t.leaving = true, !over
	if g := t.Heirs(); g != nil && !over && !t.w.plant.noFile {
		t.p.node.place.group = g
	}
	began := t.ticks
	end := func(ended bool) bool {
		if place := &t.p.node.place; t.AtEndpoint() {
			if ended {
				place.group = nil
			}
			place.open, place.marker = false, OptionalTime{t.p.node.local(), !ended}
		}
		done()
		return true
	}
	t.ending = func() bool {
		waited := time.Duration(t.ticks-began) * simTick
		lost := t.Status.Leader == "" && t.now().Sub(t.Leaderless) >= founding.LostLeaderTimeout
		switch {
		case t.r == nil:
			return end(over)
		case t.Status.Leading && (over && t.acknowledged || !over && t.deserted):
			t.dissolve()
			return end(true)
		case lost, over && waited >= t.w.cfg.job.JoinTimeout, !over && (waited >= founding.LeaveTimeout || t.isLast()):
			return end(false)
		}
		return false
	}
}

// dissolve ends the group.
func (t *simPart) dissolve() {
	t.w.logf("%s dissolves group %d", t.Addr, t.group.instance)
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
	p.m.StoreLost(p.node.local())
	if p.m.over == nil {
		p.m.over = &Ending{Err: rdzv.ErrConnection}
	}
	p.node.gone = true
	p.pump()
}
