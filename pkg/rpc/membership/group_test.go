package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// network is a simulated network: the processes by incarnation, and the links that are cut.
type network struct {
	mu    sync.Mutex
	hosts map[uint64]*host
	cuts  map[[2]uint64]bool
	// failFast makes a call over a cut link fail at once, not at its timeout. It is for tests in real time.
	failFast bool
}

type host struct {
	*Dynamic
	store  *faultStore
	dead   bool // the process refuses connections
	paused bool // the process does not reply
}

// peers is the network as one member sees it.
type peers struct {
	net  *network
	self uint64
}

func (p peers) Sync(ctx context.Context, to Record, version int64) error {
	h, err := p.net.route(ctx, p.self, to.Incarnation)
	if err != nil {
		return err
	}
	err = h.WaitVersion(ctx, version)
	if errors.Is(err, ErrShutdown) || errors.Is(err, ErrEvicted) {
		return ErrGone
	}
	return err
}

func (p peers) Probe(ctx context.Context, to Record) error {
	_, err := p.net.route(ctx, p.self, to.Incarnation)
	return err
}

var errNoReply = errors.New("no reply")

func (n *network) route(ctx context.Context, from, to uint64) (*host, error) {
	n.mu.Lock()
	h, known := n.hosts[to]
	cut := n.cuts[[2]uint64{from, to}] || n.cuts[[2]uint64{to, from}] ||
		n.cuts[[2]uint64{from, 0}] || n.cuts[[2]uint64{to, 0}]
	refused := !known || h.dead
	silent := cut || known && h.paused
	n.mu.Unlock()
	switch {
	case silent && n.failFast:
		return nil, errNoReply
	case silent:
		<-ctx.Done()
		return nil, errNoReply
	case refused:
		return nil, ErrGone
	}
	return h, nil
}

func (n *network) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// group is a dynamic group under test: its operations and its expected members.
type group struct {
	t    *testing.T
	net  *network
	dial func() kvstore.Store // returns the store of a new member
	opts Options
	last uint64  // the last incarnation in use
	live []*host // by id
}

func newGroup(t *testing.T, dial func() kvstore.Store) *group {
	t.Helper()
	g := &group{t: t, dial: dial, net: &network{hosts: map[uint64]*host{}, cuts: map[[2]uint64]bool{}}}
	g.opts = Options{LockTimeout: 3 * time.Second, ReplyTimeout: 2 * time.Second, SyncTimeout: time.Second}
	t.Cleanup(func() {
		for _, h := range g.net.hosts {
			h.store.set(nil)
			h.Close()
		}
	})
	return g
}

// newHost returns a process that has not joined.
func (g *group) newHost(name string) *host {
	g.last++
	self := Record{
		Version: Version, Name: name, Incarnation: g.last, Host: "a", Address: fmt.Sprintf("10.0.0.1:%d", g.last),
	}
	store := newFaultStore(kvstore.NewPrefixStore("rpc/test", g.dial()))
	h := &host{Dynamic: NewDynamic(store, self, peers{g.net, g.last}, g.opts), store: store}
	g.net.change(func() { g.net.hosts[g.last] = h })
	return h
}

// join adds a member.
func (g *group) join(name string) *host {
	g.t.Helper()
	h := g.newHost(name)
	if err := h.Join(g.t.Context()); err != nil {
		g.t.Fatalf("join of %s: %v", name, err)
	}
	g.live = append(g.live, h)
	return h
}

func (g *group) drop(h *host) {
	g.live = slices.DeleteFunc(g.live, func(o *host) bool { return o == h })
}

func (g *group) leave(h *host) {
	g.t.Helper()
	if err := h.Leave(g.t.Context()); err != nil {
		g.t.Fatalf("leave of %s: %v", h.Self().Name, err)
	}
	g.drop(h)
	g.net.change(func() { h.dead = true })
}

// kill ends a process. Its neighbors notice it.
func (g *group) kill(h *host) {
	g.net.change(func() { h.dead = true })
	h.Close()
	g.drop(h)
	g.neighborsSuspect(h.self.Incarnation)
}

// neighborsSuspect does what the neighbors of a member do when their connections break.
func (g *group) neighborsSuspect(incarnation uint64) {
	for _, h := range g.live {
		members := h.View().Members
		before, _ := predecessor(members, incarnation)
		next, _ := Successor(members, incarnation)
		if own := h.Self().Incarnation; own == before.Incarnation || own == next.Incarnation {
			h.Suspect(incarnation)
		}
	}
}

type seenMember struct {
	Name        string
	ID          int
	Incarnation uint64
}

func (g *group) want() []seenMember {
	var want []seenMember
	for _, h := range g.live {
		s := h.Self()
		want = append(want, seenMember{s.Name, s.ID, s.Incarnation})
	}
	return want
}

func membersOf(v View) []seenMember {
	var got []seenMember
	for _, m := range v.Members {
		got = append(got, seenMember{m.Name, m.ID, m.Incarnation})
	}
	return got
}

// checkViews checks that all members have the right view now.
func (g *group) checkViews(what string) {
	g.t.Helper()
	for _, h := range g.live {
		if diff := cmp.Diff(g.want(), membersOf(h.View())); diff != "" {
			g.t.Fatalf("after %s, %s sees another group: %s", what, h.Self().Name, diff)
		}
	}
}

// waitViews waits until all members have the right view.
func (g *group) waitViews(what string) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), time.Minute)
	defer cancel()
	for _, h := range g.live {
		for {
			view := h.View()
			diff := cmp.Diff(g.want(), membersOf(view))
			if diff == "" {
				break
			}
			select {
			case <-view.Changed:
			case <-h.Done():
				g.t.Fatalf("after %s, %s is no member: %v", what, h.Self().Name, h.Err())
			case <-ctx.Done():
				g.t.Fatalf("after %s, %s sees another group: %s", what, h.Self().Name, diff)
			}
		}
	}
}
