package replica

import (
	"errors"
	"maps"
	"slices"
	"testing"
)

// group is a few replicas and a network between them that loses no message, except those that drop selects.
type group struct {
	t        testing.TB
	replicas map[ID]*Replica
	roles    map[ID]Role
	results  map[ID]map[Ticket]error
	drop     func(Message) bool
	sent     []Message // all messages that were not dropped
}

// never is an election timeout that no test reaches.
const never = 1 << 20

func newGroup(t testing.TB) *group {
	t.Helper()
	g := &group{
		t: t, replicas: map[ID]*Replica{}, roles: map[ID]Role{}, results: map[ID]map[Ticket]error{},
		drop: func(Message) bool { return false },
	}
	g.add(Config{ID: 1, Founder: true})
	return g
}

// add starts a replica. By default it campaigns only if a test says so.
func (g *group) add(cfg Config) *Replica {
	g.t.Helper()
	if cfg.ElectionTimeout == nil {
		cfg.ElectionTimeout = func() int { return never }
	}
	r, err := New(cfg)
	if err != nil {
		g.t.Fatal(err)
	}
	g.replicas[cfg.ID], g.results[cfg.ID] = r, map[Ticket]error{}
	g.run()
	return r
}

// newGroupOf returns a group of the voters 1 to n that 1 leads.
func newGroupOf(t testing.TB, n int, cfg Config) *group {
	t.Helper()
	g := newGroup(t)
	var voters []ID
	for id := ID(1); id <= ID(n); id++ {
		if cfg.ID = id; id > 1 {
			g.add(cfg)
		}
		voters = append(voters, id)
	}
	g.change(voters, nil)
	return g
}

func (g *group) change(voters, learners []ID) {
	g.t.Helper()
	leader := g.leader()
	ticket, err := leader.Change(voters, learners)
	if err != nil {
		g.t.Fatal(err)
	}
	g.tick(6)
	g.settled(leader, ticket, nil)
}

// run delivers messages until there are none.
func (g *group) run() {
	g.t.Helper()
	for g.round() {
	}
}

// round takes each replica's output and delivers its messages. It reports whether there were any.
func (g *group) round() bool {
	g.t.Helper()
	var messages []Message
	for _, id := range slices.Sorted(maps.Keys(g.replicas)) {
		out := g.replicas[id].Output()
		g.roles[id] = out.Role
		messages = append(messages, out.Messages...)
		for _, s := range out.Settled {
			if _, twice := g.results[id][s.Ticket]; twice {
				g.t.Fatalf("replica %d settles ticket %d twice", id, s.Ticket)
			}
			g.results[id][s.Ticket] = s.Err
		}
	}
	for _, m := range messages {
		g.deliver(m)
	}
	return len(messages) > 0
}

func (g *group) deliver(m Message) {
	g.t.Helper()
	to := g.replicas[m.To()]
	if to == nil || g.replicas[m.From()] == nil || g.drop(m) {
		return
	}
	g.sent = append(g.sent, m)
	g.step(to, m)
}

// step passes a message on as a network does.
func (g *group) step(to *Replica, m Message) {
	g.t.Helper()
	data, err := m.Encode()
	if err != nil {
		g.t.Fatal(err)
	}
	if m, err = Decode(data); err != nil {
		g.t.Fatal(err)
	}
	if err := to.Step(m); err != nil {
		g.t.Fatal(err)
	}
}

// tick advances all replicas by n ticks.
func (g *group) tick(n int) {
	g.t.Helper()
	g.run()
	for range n {
		for _, id := range slices.Sorted(maps.Keys(g.replicas)) {
			g.replicas[id].Tick()
		}
		g.run()
	}
}

// leader returns the only replica that leads.
func (g *group) leader() *Replica {
	g.t.Helper()
	g.run()
	var leader *Replica
	for id, role := range g.roles {
		if role.Leading && g.replicas[id] != nil {
			if leader != nil {
				g.t.Fatalf("replicas %d and %d lead", leader.id, id)
			}
			leader = g.replicas[id]
		}
	}
	if leader == nil {
		g.t.Fatalf("no replica leads: %+v", g.roles)
	}
	return leader
}

// elect makes a replica campaign once the others have heard from no leader for long enough.
func (g *group) elect(id ID) {
	g.t.Helper()
	g.tick(10)
	g.replicas[id].campaign()
	g.run()
	if r := g.leader(); r.id != id {
		g.t.Fatalf("replica %d leads, not %d", r.id, id)
	}
}

// kill ends a replica.
func (g *group) kill(id ID) { delete(g.replicas, id) }

// isolate cuts a replica off.
func (g *group) isolate(id ID) {
	g.drop = func(m Message) bool { return m.From() == id || m.To() == id }
}

func (g *group) heal() { g.drop = func(Message) bool { return false } }

// holdSnapshots collects snapshots instead of delivering them, until heal.
func (g *group) holdSnapshots() *[]Message {
	held := new([]Message)
	g.drop = func(m Message) bool {
		if m.IsSnapshot() {
			*held = append(*held, m)
		}
		return m.IsSnapshot()
	}
	return held
}

func (g *group) write(r *Replica, key, value string) Ticket {
	g.t.Helper()
	ticket, err := r.Write([]Edit{{Bucket: "b", Key: key, Value: []byte(value)}})
	if err != nil {
		g.t.Fatal(err)
	}
	return ticket
}

func (g *group) confirm(r *Replica) Ticket {
	g.t.Helper()
	ticket, err := r.Confirm()
	if err != nil {
		g.t.Fatal(err)
	}
	return ticket
}

// settled checks the outcome of a request.
func (g *group) settled(r *Replica, ticket Ticket, want error) {
	g.t.Helper()
	g.run()
	got, ok := g.results[r.id][ticket]
	if !ok || !errors.Is(got, want) || want == nil && got != nil {
		g.t.Errorf("ticket %d of replica %d: settled %v, error %v; want %v", ticket, r.id, ok, got, want)
	}
}

// pending checks that a request has no outcome yet.
func (g *group) pending(r *Replica, ticket Ticket) {
	g.t.Helper()
	g.run()
	if err, ok := g.results[r.id][ticket]; ok {
		g.t.Errorf("ticket %d of replica %d is settled: %v", ticket, r.id, err)
	}
}
