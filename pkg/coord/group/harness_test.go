package group

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// network connects the members of a test by pipes. All goroutines run in one synctest bubble.
type network struct {
	t    testing.TB
	opts Options // of each member; Addr and Connect are the network's

	rate atomic.Int64 // bytes that each connection carries in a second; 0: no limit

	mu      sync.Mutex
	members map[string]*Member
	cut     map[[2]string]bool // two addresses, or a client's name and an address
	conns   map[*link]bool
	stored  map[string][]byte // by Options.Store of each member
}

// link is one end of a pipe.
type link struct {
	net.Conn
	ends [2]string
	rate *atomic.Int64 // the rate of the network
	sent atomic.Int64
}

// Write takes as long as the network's rate requires.
func (l *link) Write(b []byte) (int, error) {
	l.sent.Add(int64(len(b)))
	if rate := l.rate.Load(); rate > 0 {
		time.Sleep(time.Duration(len(b)) * time.Second / time.Duration(rate)) //nolint:forbidigo // the bubble's time
	}
	return l.Conn.Write(b)
}

func newNetwork(t testing.TB, opts Options) *network {
	t.Helper()
	n := &network{
		t: t, opts: opts, members: map[string]*Member{}, cut: map[[2]string]bool{}, conns: map[*link]bool{},
		stored: map[string][]byte{},
	}
	t.Cleanup(func() {
		for _, m := range n.members {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return n
}

// start starts a member at addr.
func (n *network) start(addr string) *Member {
	n.t.Helper()
	opts := n.opts
	opts.Addr = addr
	opts.Connect = func(ctx context.Context, to string) (net.Conn, error) { return n.dial(ctx, addr, to) }
	opts.Store = func(stored []byte) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.stored[addr] = stored
	}
	m := New(opts)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.members[addr] = m
	return m
}

// storedBy returns the latest data for Options.Store of the member at addr.
func (n *network) storedBy(addr string) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stored[addr]
}

var errCut = errors.New("the network is cut")

func (n *network) dial(ctx context.Context, from, to string) (net.Conn, error) {
	n.mu.Lock()
	m := n.members[to]
	silent := n.isCut([2]string{from, to})
	n.mu.Unlock()
	if silent {
		<-ctx.Done()
		return nil, errCut
	}
	if m == nil {
		return nil, syscall.ECONNREFUSED
	}
	here, there := net.Pipe()
	l := &link{Conn: here, ends: [2]string{from, to}, rate: &n.rate}
	n.mu.Lock()
	n.conns[l] = true
	n.mu.Unlock()
	m.ServeConn(there)
	return l, nil
}

// kill ends a member as a crash would. It returns the latest data for the member's Options.Store.
func (n *network) kill(addr string) (stored []byte) {
	n.t.Helper()
	n.mu.Lock()
	m := n.members[addr]
	stored = n.stored[addr]
	delete(n.members, addr)
	n.mu.Unlock()
	if err := m.Close(); err != nil {
		n.t.Error(err)
	}
	n.breakConns(func(l *link) bool { return l.ends[0] == addr || l.ends[1] == addr })
	return stored
}

// isolate cuts a member off from all other members and from these clients. heal ends the cut.
func (n *network) isolate(addr string, clients ...string) (heal func()) {
	n.mu.Lock()
	cuts := make([][2]string, 0, len(n.members)+len(clients))
	for other := range n.members {
		cuts = append(cuts, [2]string{other, addr})
	}
	n.mu.Unlock()
	for _, client := range clients {
		cuts = append(cuts, [2]string{client, addr})
	}
	return n.part(cuts...)
}

// part cuts the paths between the two ends of each pair, whose members may start later. heal ends the cuts.
func (n *network) part(cuts ...[2]string) (heal func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, cut := range cuts {
		n.cut[cut] = true
	}
	n.breakLocked(func(l *link) bool { return n.isCut(l.ends) })
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, cut := range cuts {
			delete(n.cut, cut)
		}
	}
}

// isCut reports whether two ends cannot talk. mu is held.
func (n *network) isCut(ends [2]string) bool {
	return n.cut[ends] || n.cut[[2]string{ends[1], ends[0]}]
}

func (n *network) breakConns(which func(*link) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.breakLocked(which)
}

func (n *network) breakLocked(which func(*link) bool) {
	for l := range n.conns {
		if which(l) {
			l.Close()
			delete(n.conns, l)
		}
	}
}

// candidates returns a candidate at each address.
func candidates(addrs ...string) []Candidate {
	all := make([]Candidate, len(addrs))
	for i, addr := range addrs {
		all[i].Addr = addr
	}
	return all
}

// begin founds a group of members at these addresses and returns the one that leads. It does not wait until all vote.
func (n *network) begin(addrs ...string) *Member {
	n.t.Helper()
	for _, addr := range addrs {
		n.start(addr).SetCandidates(candidates(addrs...))
	}
	leader := n.members[addrs[0]]
	if err := leader.Found(); err != nil {
		n.t.Fatal(err)
	}
	return leader
}

// found founds a group of members at these addresses, which it returns, and waits until all of them vote.
func (n *network) found(addrs ...string) []string {
	n.t.Helper()
	leader := n.begin(addrs...)
	n.await("all members to vote", func() bool {
		s := leader.Status()
		return len(s.Voters) == len(addrs) && (s.SurvivesLoss || len(addrs) < 3)
	})
	return addrs
}

// grow starts another member and gives its address to all members and to these clients. It returns all addresses.
func (n *network) grow(addrs []string, clients ...*coord.Client) []string {
	n.t.Helper()
	added := fmt.Sprintf("member%d:1", len(addrs))
	addrs = append(addrs, added)
	n.start(added)
	for _, m := range n.members {
		m.SetCandidates(candidates(addrs...))
	}
	for _, c := range clients {
		c.SetAddrs(addrs)
	}
	return addrs
}

// awaitSpare waits until the group survives the loss of any one voter.
func (n *network) awaitSpare() {
	n.t.Helper()
	n.await("three voters", func() bool { return n.members[n.leader()].Status().SurvivesLoss })
}

// await waits in virtual time until a condition holds.
func (n *network) await(what string, holds func() bool) {
	n.t.Helper()
	for began := time.Now(); !holds(); time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // the bubble's time
		if time.Since(began) > time.Minute {
			for addr, m := range n.members {
				n.t.Logf("%s: %+v", addr, m.Status())
				done := make(chan bool)
				m.call(func() {
					defer close(done)
					if m.replica != nil {
						n.t.Logf("%s: id %d %+v\n manager %+v", addr, m.id, m.replica.Status(), m.manager)
					}
				})
				<-done
			}
			n.t.Fatalf("waited for %s", what)
		}
	}
}

// leader returns the address of the member that leads.
func (n *network) leader() string {
	n.t.Helper()
	leader := ""
	n.await("a leader", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		for addr, m := range n.members {
			if m.Status().Leading {
				leader = addr
				return true
			}
		}
		return false
	})
	return leader
}

// client returns a client with a session, which is closed when the test ends. It knows these addresses. At least one of
// them must lead to the group.
func (n *network) client(name string, ttl time.Duration, addrs ...string) *coord.Client {
	n.t.Helper()
	opts := n.opts.Dial
	opts.TTL = ttl
	opts.Adapt = func(o *coord.DialOptions) {
		addr := o.Addr
		o.Conn = func(ctx context.Context) (net.Conn, error) { return n.dial(ctx, name, addr) }
	}
	for i := 0; ; i++ {
		opts.Addr = addrs[i%len(addrs)]
		opts.Adapt(&opts)
		c, err := coord.Dial(n.t.Context(), opts)
		if err == nil {
			c.SetAddrs(addrs)
			n.t.Cleanup(func() { closeClient(n.t, c) })
			return c
		}
		if !errors.Is(err, coord.ErrUnavailable) {
			n.t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) //nolint:forbidigo // the bubble's time
	}
}
