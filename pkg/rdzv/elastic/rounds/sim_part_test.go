package rounds

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord/group"
	"github.com/elasticrun/elasticrun/pkg/coord/replica"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/founding"
)

// simPart is an agent's part in the store, as group.Member and storeMember. Its replica and its founding.State are the
// real ones.
type simPart struct {
	w *world
	p *agentProc
	founding.State
	group    *simGroup // the latest; nil if it has been in none
	r        *replica.Replica
	id       replica.ID
	server   *simStore // nil while it does not serve
	served   uint64    // the term of its latest server
	waits    map[replica.Ticket]func(error)
	retries  []func()
	stored   replica.Acknowledged  // as Member.stored
	addrs    map[replica.ID]string // addresses of members from which messages have come
	referral string                // the address of another group's member

	// As manager of package group:
	ticks   int
	busy    bool
	commit  uint64
	heard   int
	heardAt time.Duration // as Member.heardAt
	adopted map[replica.ID]int
	refused map[string]int
	departs map[replica.ID]bool
	leaving bool // the process hands over, and joins no group again

	invited      []group.Candidate // whom its leader may ask to join
	announcedTo  []string          // the agents of a former group
	history      StoreHistory      // of the group that it founds
	founded      bool              // it has just founded a group
	acknowledged bool
	deserted     bool
	ending       func() bool // ends the process once it returns true
}

const simTick = 100 * time.Millisecond

// bucketMembers has the address of each member, by its id.
const bucketMembers = "members"

func newPart(p *agentProc, addr string, index int) *simPart {
	t := &simPart{w: p.w, p: p, waits: map[replica.Ticket]func(error){}}
	t.State = founding.State{TTL: p.w.cfg.ttl, Addr: addr, Index: index, Job: founding.EarlierGroup{Min: p.node.job.Min}}
	p.part = t
	p.later(p.w.between(0, simTick), t.tick)
	return t
}

func (t *simPart) now() time.Time { return time.Unix(0, int64(t.p.node.local())) }

// partAt returns the part of the process that listens at an address, or nil.
func (w *world) partAt(addr string) *simPart {
	for _, n := range w.nodes {
		if p := n.proc; p != nil && p.part != nil && p.part.Addr == addr {
			return p.part
		}
	}
	return nil
}

// frame has the process at an address do something. Frames may be lost.
func (t *simPart) frame(addr string, do func(to *simPart)) {
	w, from := t.w, t.p.node
	if w.now < from.refusing {
		return
	}
	w.after(w.delay(), func() {
		to := w.partAt(addr)
		if to == nil || from.cut[up] || to.p.node.cut[down] {
			return
		}
		to.p.node.agent.do(false, func() {
			if !to.p.dead {
				do(to)
				to.flush()
			}
		})
	})
}

// become makes this process a replica of a group.
func (t *simPart) become(g *simGroup, id replica.ID, founder bool) {
	t.abandon()
	r, err := replica.New(replica.Config{
		ID: id, Founder: founder, HeartbeatTicks: 2, ElectionTicks: 10, MaxLog: 2000,
		ElectionTimeout: func() int { return 10 + t.w.rng.IntN(10) },
	})
	if err != nil {
		panic(err)
	}
	t.addrs = map[replica.ID]string{}
	t.r, t.id, t.group, t.heard, t.referral = r, id, g, t.ticks, ""
	t.w.logf("%s is replica %d of group %d", t.Addr, id, g.instance)
}

// abandon ends the membership.
func (t *simPart) abandon() {
	if t.r == nil {
		return
	}
	t.w.logf("%s leaves group %d", t.Addr, t.group.instance)
	t.stopServing()
	t.r, t.served, t.busy, t.commit, t.adopted, t.refused, t.departs = nil, 0, false, 0, nil, nil, nil
	t.waits, t.retries = map[replica.Ticket]func(error){}, nil
	t.update()
}

// request makes a request for a server. done gets the outcome.
func (t *simPart) request(s *simStore, request func(*replica.Replica) (replica.Ticket, error), done func(error)) {
	if t.r == nil || t.server != s {
		return
	}
	again := func() { t.retries = append(t.retries, func() { t.request(s, request, done) }) }
	ticket, err := request(t.r)
	switch {
	case errors.Is(err, replica.ErrBusy):
		again()
		return
	case err != nil:
		done(err)
		return
	}
	t.waits[ticket] = func(err error) {
		if errors.Is(err, replica.ErrBusy) {
			again()
			return
		}
		done(err)
	}
	t.flush()
}

// flush does what the replica asks for.
func (t *simPart) flush() {
	if t.r == nil || t.p.dead {
		return
	}
	out := t.r.Output()
	t.stored, _ = t.r.Acknowledged()
	t.group.applied(t.w, t.r)
	for _, m := range out.Messages {
		b, err := m.Encode()
		if err != nil {
			panic(err)
		}
		from, g := t.Addr, t.group
		t.frame(t.addrOf(m.To()), func(to *simPart) { to.step(from, g, b) })
	}
	for _, s := range out.Settled {
		if done := t.waits[s.Ticket]; done != nil {
			delete(t.waits, s.Ticket)
			done(s.Err)
		}
	}
	if t.r == nil {
		return
	}
	if err := t.r.Err(); err != nil {
		t.w.check.fail("one history", "replica %d of group %d: %v", t.id, t.group.instance, err)
		return
	}
	role := t.r.Status().Role
	if s := t.server; s != nil && !t.clings() && (!role.Leading || role.Term != t.served) {
		t.stopServing()
	}
	if t.server == nil && role.Leading && role.Term != t.served {
		t.serve(role.Term)
	}
	t.update()
}

// clings reports whether a server, because of a planted bug, goes on without a majority.
func (t *simPart) clings() bool { return t.w.plant.fromMemory && t.r.Status().Leader == 0 }

// step handles a message of another member.
func (t *simPart) step(from string, g *simGroup, b []byte) {
	m, err := replica.Decode(b)
	if err != nil || t.r == nil || t.group != g || m.To() != t.id {
		return
	}
	t.addrs[m.From()] = from
	if err := t.r.Step(m); err != nil {
		t.w.check.fail("one history", "%s refuses a message of %s: %v", t.Addr, from, err)
	}
	if m.From() == t.r.Status().Leader {
		t.heard, t.heardAt = t.ticks, t.p.node.local()
	}
}

// serve begins a server in a term in which this member leads.
func (t *simPart) serve(term uint64) {
	w := t.w
	s := t.newKeptStore()
	t.server, t.served = s, term
	w.check.groups.servers++
	w.logf("%s serves group %d in term %d: revision %d, %d sessions", t.Addr, t.group.instance, term, s.rev,
		len(s.sessions))
	if s.instance == w.store.instance {
		w.store = s
	}
	t.acknowledged, t.deserted = false, false
	if t.founded {
		s.fresh, t.founded = t.history, false
	}
	s.lead()
}

// stopServing ends the server. Its clients look for the next one.
func (t *simPart) stopServing() {
	if s := t.server; s != nil {
		t.server, t.busy = nil, false
		t.w.logf("%s serves no more", t.Addr)
		t.w.check.forgive(nil, "another server")
		s.stop()
	}
}

// addrOf returns a member's address.
func (t *simPart) addrOf(id replica.ID) string {
	if addr := t.r.Value(bucketMembers, strconv.FormatUint(uint64(id), 10)); addr != nil {
		return string(addr)
	}
	return t.addrs[id] // of a member that the contents, which may be out of date, do not have
}

// update records the state of the group, as Member.setStatus.
func (t *simPart) update() {
	s := group.Status{}
	if t.r != nil {
		now := t.r.Status()
		s = group.Status{Member: true, Leading: now.Leading, SurvivesLoss: now.SurvivesLoss()}
		if now.Leader != 0 {
			s.Leader = t.addrOf(now.Leader)
		}
		for _, id := range now.Voters {
			s.Voters = append(s.Voters, t.addrOf(id))
			if other := replicaOf(now, id); other != nil && other.Silent >= 5 {
				s.SurvivesLoss = false
			}
		}
	}
	before := t.Status
	t.Observe(t.now(), s)
	if s.Leader != "" && s.Leader != before.Leader {
		t.p.expect(s.Leader)
	}
	same := before.SurvivesLoss == s.SurvivesLoss && slices.Equal(before.Voters, s.Voters)
	if t.server != nil && !same && t.server.term != nil {
		l := t.server.term
		t.server.actor.timer(t.w.now, func() {
			if l.l != nil {
				l.pump()
			}
		})
	}
}

func replicaOf(s replica.Status, id replica.ID) *replica.Member {
	for i := range s.Members {
		if s.Members[i].ID == id {
			return &s.Members[i]
		}
	}
	return nil
}

// tick handles the passing of time, as Member.tick.
func (t *simPart) tick() {
	if t.ending != nil && t.ending() {
		return
	}
	t.p.later(simTick, t.tick)
	if t.ticks++; t.r == nil {
		return
	}
	t.r.Tick()
	retries := t.retries
	t.retries = nil
	for _, retry := range retries {
		retry()
	}
	t.flush()
	if t.r != nil {
		t.manage()
		t.flush()
	}
}
