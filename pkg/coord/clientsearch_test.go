package coord

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// testGroup is the network between a client and the members of a store's group, in a bubble. Its members are "a:1",
// "b:1" and "c:1".
type testGroup struct {
	serving *Server

	mu       sync.Mutex
	servedAt string // the address of the member that serves
	named    map[string]string
	dials    map[string][]time.Time
	networks map[string]*faultyNetwork
}

var groupAddrs = []string{"a:1", "b:1", "c:1"}

// newTestGroup returns a group whose first member serves.
func newTestGroup(t *testing.T) *testGroup {
	t.Helper()
	g := &testGroup{
		serving: NewServer(memberOptions()), servedAt: "a:1", named: map[string]string{}, dials: map[string][]time.Time{},
		networks: map[string]*faultyNetwork{},
	}
	t.Cleanup(func() { _ = g.serving.Close() })
	for _, addr := range groupAddrs {
		opts := memberOptions()
		opts.Elsewhere = func() (string, bool) {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.named[addr], true
		}
		refusing := NewServer(opts)
		t.Cleanup(func() { _ = refusing.Close() })
		g.networks[addr] = newFaultyNetwork(func(ctx context.Context) (net.Conn, error) {
			g.mu.Lock()
			s := refusing
			if g.servedAt == addr {
				s = g.serving
			}
			g.mu.Unlock()
			return pipeTo(s)(ctx)
		})
	}
	return g
}

// conn returns DialOptions.Conn for an address.
func (g *testGroup) conn(addr string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		g.mu.Lock()
		g.dials[addr] = append(g.dials[addr], time.Now())
		network := g.networks[addr]
		g.mu.Unlock()
		if network == nil {
			return nil, errors.New("no such host")
		}
		return network.dial(ctx)
	}
}

// dial returns a client with a session at a:1 that is closed when the test ends.
func (g *testGroup) dial(t *testing.T, ttl time.Duration, addrs ...string) *Client {
	t.Helper()
	opts := memberDial("a:1")
	opts.Conn, opts.TTL = g.conn("a:1"), ttl
	opts.Adapt = func(other *DialOptions) { other.Conn = g.conn(other.Addr) }
	c := dial(t, opts)
	c.SetAddrs(addrs)
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.dials)
	return c
}

// move makes another member serve; empty: no member. named maps each member to the address that it names.
func (g *testGroup) move(to string, named map[string]string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.servedAt, g.named = to, named
}

// attempts returns how many attempts there were at an address, and forgets them.
func (g *testGroup) attempts(addr string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := len(g.dials[addr])
	delete(g.dials, addr)
	return n
}

// cut stops or resumes all data to and from a member.
func (g *testGroup) cut(addr string, cut bool) {
	n := g.networks[addr]
	n.set(func() { n.cut = cut })
}

// cutConns stops all data of the existing connections to a member for good, but not of new connections.
func (g *testGroup) cutConns(addr string) (broken *faultyNetwork) {
	g.cut(addr, true)
	g.mu.Lock()
	defer g.mu.Unlock()
	broken = g.networks[addr]
	g.networks[addr] = newFaultyNetwork(broken.connect)
	return broken
}

// vanish makes a member never answer again. Its connections break.
func (g *testGroup) vanish(addr string) {
	silent := newFaultyNetwork(nil)
	silent.cut = true
	g.mu.Lock()
	before := g.networks[addr]
	g.networks[addr] = silent
	g.mu.Unlock()
	before.reset()
}

// keepAliveWithin checks that a keep-alive is answered after a time between least and most.
func keepAliveWithin(t *testing.T, c *Client, least, most time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	began := time.Now()
	if err := c.KeepAlive(ctx); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < least || took > most {
		t.Errorf("a keep-alive took %v, want %v to %v", took, least, most)
	}
}

// TestGroupMoves lets another member serve. The client resumes its session there.
func TestGroupMoves(t *testing.T) {
	for _, tc := range []struct {
		name  string
		named map[string]string
		addrs []string
		dials []int // at each member
	}{
		{"the old member knows", map[string]string{"a:1": "b:1"}, groupAddrs, []int{1, 1, 0}},
		{"nobody knows", nil, groupAddrs, []int{1, 1, 0}},
		{"nobody knows, the other order", nil, []string{"c:1", "b:1"}, []int{1, 1, 1}},
		{"only the old member knows", map[string]string{"a:1": "b:1"}, nil, []int{1, 1, 0}},
		{"a chain", map[string]string{"a:1": "c:1", "c:1": "b:1"}, nil, []int{1, 1, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newTestGroup(t)
				c := g.dial(t, 10*time.Second, tc.addrs...)
				session := c.Session()
				put(t, c, Op{Key: "k", Owned: true})
				seen := watch(t, c, "")
				next(t, seen, "the first batch")
				g.move("b:1", tc.named)
				g.networks["a:1"].reset()
				keepAliveWithin(t, c, 0, 3*attemptStagger)
				if b := next(t, seen, "the state"); !b.Resync || len(b.Events) != 1 {
					t.Errorf("batch %+v", b)
				}
				for i, addr := range groupAddrs {
					if n := g.attempts(addr); n != tc.dials[i] {
						t.Errorf("%d attempts at %s, want %d", n, addr, tc.dials[i])
					}
				}
				if c.Session() != session || c.Addrs()[0] != "b:1" || c.Addr() != "a:1" || g.serving.Sessions() != 1 {
					t.Errorf("session %s of %v, %d sessions", c.Session(), c.Addrs(), g.serving.Sessions())
				}
				// When the connection breaks again, the search begins at the latest member.
				g.networks["b:1"].reset()
				keepAliveWithin(t, c, 0, 0)
				if one, two := g.attempts("b:1"), g.attempts("a:1"); one != 1 || two != 0 {
					t.Errorf("%d attempts at the latest member and %d at another", one, two)
				}
			})
		})
	}
}

// TestGroupElection lets no member serve for a while. The client asks all members, neither rarely nor all the time.
func TestGroupElection(t *testing.T) {
	for name, named := range map[string]map[string]string{
		"nobody knows":           nil,
		"they name each other":   {"a:1": "b:1", "b:1": "c:1", "c:1": "a:1"},
		"they name the old one":  {"b:1": "a:1", "c:1": "a:1"},
		"they name unknown ones": {"a:1": "x:1", "b:1": "y:1", "c:1": "z:1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newTestGroup(t)
				c := g.dial(t, time.Hour, groupAddrs...)
				g.move("", named)
				g.networks["a:1"].reset()
				time.Sleep(time.Second) //nolint:forbidigo // the bubble's time
				for _, addr := range groupAddrs {
					if n := g.attempts(addr); n < 4 || n > 20 {
						t.Errorf("%d attempts at %s within a second", n, addr)
					}
				}
				time.Sleep(19 * time.Second) //nolint:forbidigo // the bubble's time
				for _, addr := range groupAddrs {
					g.attempts(addr)
				}
				time.Sleep(10 * time.Second) //nolint:forbidigo // the bubble's time
				for _, addr := range groupAddrs {
					if n := g.attempts(addr); n < 8 || n > 40 {
						t.Errorf("%d attempts at %s within 10 s, later", n, addr)
					}
				}
				if c.Err() != nil {
					t.Fatal(c.Err())
				}
				g.move("c:1", named)
				keepAliveWithin(t, c, 0, 2*time.Second)
			})
		})
	}
}

// TestGroupDeadMembers makes the serving member and another one vanish silently. The client finds the third member.
func TestGroupDeadMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGroup(t)
		c := g.dial(t, time.Minute, groupAddrs...)
		g.move("", nil)
		g.vanish("b:1")
		g.vanish("a:1")
		time.Sleep(time.Second) //nolint:forbidigo // the bubble's time
		if one, two := g.attempts("a:1"), g.attempts("b:1"); one != 1 || two != 1 {
			t.Errorf("%d and %d attempts at members that do not answer, want one at a time", one, two)
		}
		g.move("c:1", nil)
		keepAliveWithin(t, c, 0, elsewhereDelay*5/2)
	})
}

// TestSuspectedMember makes the path to the serving member fail silently. A client with several addresses looks for the
// store at the others after a second. A client with a single address does so after a quarter of the TTL.
func TestSuspectedMember(t *testing.T) {
	const ttl = time.Minute
	synctest.Test(t, func(t *testing.T) {
		g := newTestGroup(t)
		c := g.dial(t, ttl, groupAddrs...)
		g.cut("a:1", true)
		g.move("b:1", nil)
		keepAliveWithin(t, c, time.Second, time.Second)
		if n := g.attempts("a:1"); n != 0 {
			t.Errorf("%d attempts at the suspected member", n)
		}
		g.cut("a:1", false)
	})
	for name, addrs := range map[string][]string{"none": nil, "the same": {"a:1", "a:1"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newTestGroup(t)
				c := g.dial(t, ttl, addrs...)
				if got := time.Duration(c.answerTimeout.Load()); got != ttl/4 {
					t.Errorf("a call waits for %v", got)
				}
				g.cutConns("a:1")
				g.move("", nil) // the attempt fails at once
				ctx, cancel := context.WithTimeout(t.Context(), ttl/4+time.Second)
				defer cancel()
				if err := c.KeepAlive(ctx); !errors.Is(err, ErrUnavailable) {
					t.Errorf("a keep-alive over a cut network: %v", err)
				}
				g.mu.Lock()
				dials := slices.Clone(g.dials["a:1"])
				g.mu.Unlock()
				if len(dials) != 1 {
					t.Errorf("%d attempts within a quarter of the TTL and a second, want one", len(dials))
				}
				g.move("a:1", nil)
				keepAliveWithin(t, c, ttl/4, ttl/4)
			})
		})
	}
}

// TestSlowMember makes the serving member stop answering for a while. The client keeps its connection and makes no
// other.
func TestSlowMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGroup(t)
		c := g.dial(t, time.Minute, groupAddrs...)
		g.move("a:1", map[string]string{"b:1": "a:1", "c:1": "a:1"})
		g.cut("a:1", true)
		time.AfterFunc(5*time.Second, func() { g.cut("a:1", false) })
		keepAliveWithin(t, c, 5*time.Second, 5*time.Second)
		if stats := g.serving.Stats(); stats.Accepted != 1 {
			t.Errorf("%+v", stats)
		}
		if n := g.attempts("b:1"); n < 10 || n > 60 {
			t.Errorf("%d attempts at another member within 4 s", n)
		}
		time.Sleep(time.Second) //nolint:forbidigo // the bubble's time
		g.attempts("b:1")
		time.Sleep(20 * time.Second) //nolint:forbidigo // the bubble's time
		if one, two := g.attempts("a:1"), g.attempts("b:1"); one != 0 || two != 0 {
			t.Errorf("%d and %d attempts after the member has answered", one, two)
		}
	})
}

// TestSuspectedMemberAlone makes the path to the serving member fail, while that member continues to serve.
func TestSuspectedMemberAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGroup(t)
		c := g.dial(t, time.Minute, groupAddrs...)
		g.move("a:1", map[string]string{"b:1": "a:1", "c:1": "a:1"})
		g.cutConns("a:1")
		keepAliveWithin(t, c, 15*time.Second, 15*time.Second)
		if n := g.attempts("a:1"); n != 1 {
			t.Errorf("%d attempts at the serving member, want one", n)
		}
	})
}

// TestSuspectedMemberEnds ends the connection to a suspected member while the client asks the others. The client then
// tries that member at once.
func TestSuspectedMemberEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGroup(t)
		c := g.dial(t, time.Minute, groupAddrs...)
		g.vanish("b:1")
		broken := g.cutConns("a:1")
		time.AfterFunc(2*time.Second, func() {
			broken.set(func() { broken.cut = false })
			broken.reset()
		})
		keepAliveWithin(t, c, 2*time.Second, 2*time.Second)
	})
}

// TestGroupDenials lets other stores take the addresses of members. The client ends only when all have been taken.
func TestGroupDenials(t *testing.T) {
	other := memberOptions()
	other.InstanceID = "another"
	run := memberOptions()
	run.RunID = "another"
	synctest.Test(t, func(t *testing.T) {
		g := newTestGroup(t)
		c := g.dial(t, time.Minute, groupAddrs...)
		take := func(addr string, opts ServerOptions) {
			s := NewServer(opts)
			t.Cleanup(func() { _ = s.Close() })
			g.networks[addr].set(func() {
				g.networks[addr].connect = pipeTo(s)
			})
		}
		take("a:1", other)
		take("b:1", run)
		g.move("", nil)
		g.networks["a:1"].reset()
		time.Sleep(5 * time.Second) //nolint:forbidigo // the bubble's time
		if c.Err() != nil {
			t.Fatalf("the client has ended although a member is left: %v", c.Err())
		}
		g.move("c:1", nil)
		keepAliveWithin(t, c, 0, time.Second)
		take("c:1", other)
		g.networks["c:1"].reset()
		select {
		case <-c.Lost():
		case <-time.After(time.Minute):
		}
		want := "the job's store is not available: another store runs at its address: " +
			"the store at c:1 is gone: another instance, another, runs there now"
		if err := c.Err(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	})
}

// TestGroupSessionEnded ends the session while the client looks for the store.
func TestGroupSessionEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGroup(t)
		c := g.dial(t, time.Second, groupAddrs...)
		g.move("", nil)
		g.networks["a:1"].reset()
		time.Sleep(2 * time.Second) //nolint:forbidigo // the bubble's time
		g.move("b:1", nil)
		<-c.Lost()
		if !errors.Is(c.Err(), ErrSessionLost) {
			t.Error(c.Err())
		}
	})
}

// TestGroupClose closes a client that looks for its store at members that do not answer.
func TestGroupClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGroup(t)
		c := g.dial(t, time.Minute, groupAddrs...)
		for _, addr := range []string{"c:1", "b:1", "a:1"} {
			g.vanish(addr)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := c.Close(ctx); !errors.Is(err, ErrUnavailable) {
			t.Errorf("close: %v", err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("close took %v", took)
		}
	})
}

// TestAddrsArriveDuringSearch gives a client further addresses while it looks for its store.
func TestAddrsArriveDuringSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGroup(t)
		c := g.dial(t, time.Minute)
		g.move("c:1", nil)
		g.vanish("a:1")
		time.Sleep(time.Second) //nolint:forbidigo // the bubble's time
		c.SetAddrs(groupAddrs)
		keepAliveWithin(t, c, 0, 2*attemptStagger)
	})
}
