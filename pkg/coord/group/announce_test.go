package group

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// listen starts a member at addr that is in no group. The channel gets the announcements that the member receives.
func (n *network) listen(addr string) <-chan Announcement {
	n.t.Helper()
	heard := make(chan Announcement, 1000)
	former := n.opts.OnGroup
	n.opts.OnGroup = func(a Announcement) { heard <- a }
	n.start(addr)
	n.opts.OnGroup = former
	return heard
}

// leaderAmong returns the address of the member among these that leads.
func (n *network) leaderAmong(addrs ...string) (leader string) {
	n.t.Helper()
	n.await("a leader of the group", func() bool {
		i := slices.IndexFunc(addrs, func(addr string) bool {
			m := n.members[addr]
			return m != nil && m.Status().Leading
		})
		if i >= 0 {
			leader = addrs[i]
		}
		return i >= 0
	})
	return leader
}

// drain returns the values that wait in a channel.
func drain[T any](from <-chan T) (all []T) {
	synctest.Wait()
	for len(from) > 0 {
		all = append(all, <-from)
	}
	return all
}

// soon returns the next value of a channel, which must come within a minute.
func soon[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(time.Minute):
		t.Fatalf("waited for %s", what)
		panic("unreachable")
	}
}

// clientAt returns a client that got its session by one attempt at addr, and is closed when the test ends.
func (n *network) clientAt(name, addr string) *coord.Client {
	n.t.Helper()
	opts := n.opts.Dial
	opts.Addr, opts.TTL = addr, time.Minute
	opts.Adapt = func(o *coord.DialOptions) {
		addr := o.Addr
		o.Conn = func(ctx context.Context) (net.Conn, error) { return n.dial(ctx, name, addr) }
	}
	opts.Adapt(&opts)
	began := time.Now()
	c, err := coord.Dial(n.t.Context(), opts)
	if err != nil {
		n.t.Fatal(err)
	}
	if took := time.Since(began); took > 0 {
		n.t.Errorf("it took %v to get a session", took)
	}
	n.t.Cleanup(func() { closeClient(n.t, c) })
	return c
}

// becomesLost checks that the client loses its session within moments.
func becomesLost(t *testing.T, c *coord.Client, want error) {
	t.Helper()
	select {
	case <-c.Lost():
		if !errors.Is(c.Err(), want) {
			t.Errorf("the session was lost with %v, want %v", c.Err(), want)
		}
	case <-time.After(time.Second):
		t.Errorf("the client goes on, want %v", want)
	}
}

// TestAnnounce checks which processes hear of a group: a process in no group and a process in another group hear of it
// from its leader, even after an earlier leader was killed.
func TestAnnounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		addrs := n.found("member0:1", "member1:1", "member2:1")
		c := n.client("client", time.Minute, addrs...)
		heard := map[string]<-chan Announcement{"alone:1": n.listen("alone:1"), "other:1": n.listen("other:1")}
		if err := n.members["other:1"].Found(); err != nil {
			t.Fatal(err)
		}
		for _, addr := range addrs {
			n.members[addr].SetAnnounced([]string{"alone:1", "other:1"}, "one")
		}
		for i := range 2 {
			leader := n.leaderAmong(addrs...)
			for _, from := range heard {
				drain(from)
			}
			pass(3 * time.Second)
			want := Announcement{Addr: leader, Instance: c.InstanceID(), Label: "one"}
			for addr, from := range heard {
				got := drain(from)
				if len(got) < 5 || len(got) > 7 {
					t.Errorf("%s hears of the group %d times in 3 s", addr, len(got))
				}
				for _, a := range got {
					if diff := cmp.Diff(want, a); diff != "" {
						t.Errorf("%s hears (-want +got):\n%s", addr, diff)
					}
				}
			}
			if i == 0 {
				n.kill(leader)
			}
		}
		if s := n.members["other:1"].Status(); !s.Leading {
			t.Errorf("the announcements have changed the other group: %+v", s)
		}
	})
}

// announcesTo returns the addresses among these at which m makes an announcement when one is due.
func announcesTo(m *Member, addrs ...string) (to []string) {
	inLoop(m, func() {
		peers, now := m.peers, m.manager.now
		m.peers, m.manager.now = map[string]*peer{}, announceTicks
		for _, addr := range addrs {
			m.peers[addr] = &peer{addr: addr, frames: make(chan queuedFrame, 1)}
		}
		m.announce(m.replica.Status())
		for _, addr := range addrs {
			if len(m.peers[addr].frames) > 0 {
				to = append(to, addr)
			}
		}
		m.peers, m.manager.now = peers, now
	})
	return to
}

// TestAnnounceToOthers checks that no member is sent an announcement of its own group, and that only the leader makes
// any.
func TestAnnounceToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		addrs := n.found("member0:1", "member1:1", "member2:1")
		all := append(slices.Clone(addrs), "other:1")
		for _, addr := range addrs {
			m := n.members[addr]
			m.SetAnnounced(all, "one")
			var want []string
			if addr == "member0:1" {
				want = []string{"other:1"}
			}
			if diff := cmp.Diff(want, announcesTo(m, all...)); diff != "" {
				t.Errorf("%s makes announcements at (-want +got):\n%s", addr, diff)
			}
		}
	})
}

// TestAnnounceToNobody makes announcements at addresses where nobody listens, nobody answers, or members are refused.
// The attempts disturb nobody else, and end with the announcements.
func TestAnnounceToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		addrs := n.found("member0:1", "member1:1", "member2:1")
		c := n.client("client", time.Minute, addrs...)
		n.listen("silent:1")
		n.isolate("silent:1")
		n.opts.Server.RunID = "another"
		refused := n.listen("refuses:1")
		n.opts.Server.RunID = ""
		heard := n.listen("alone:1")
		m := n.members["member0:1"]
		m.SetAnnounced([]string{"nobody:1", "silent:1", "refuses:1", "alone:1"}, "one")
		before := m.Status()
		for range 60 {
			pass(time.Second)
			began := time.Now()
			if err := c.KeepAlive(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 0 {
				t.Errorf("an answer took %v", took)
			}
			if diff := cmp.Diff(before, m.Status()); diff != "" {
				t.Errorf("the group's state (-want +got):\n%s", diff)
			}
		}
		if got := len(drain(heard)); got < 119 || got > 121 {
			t.Errorf("another address gets %d announcements in a minute", got)
		}
		if got := drain(refused); len(got) > 0 {
			t.Errorf("a process that refuses members gets %+v", got)
		}
		m.SetAnnounced(nil, "one")
		pass(20 * time.Second)
		inLoop(m, func() {
			if len(m.peers) != 2 {
				t.Errorf("the leader has connections to %d others, want 2", len(m.peers))
			}
		})
	})
}

// TestYield has the founder of a group give it up in favor of another group.
func TestYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		addrs := n.found("member0:1", "member1:1", "member2:1")
		heard := n.listen("other:1")
		yields := n.members["other:1"]
		if err := yields.Found(); err != nil {
			t.Fatal(err)
		}
		former := []*coord.Client{
			n.client("one", time.Minute, "other:1"), n.client("all", time.Minute, append([]string{"other:1"}, addrs...)...),
		}
		for _, addr := range addrs {
			n.members[addr].SetAnnounced([]string{"other:1"}, "one")
		}
		yields.Yield(soon(t, heard, "an announcement"))
		if s := yields.Status(); !cmp.Equal(s, Status{}) {
			t.Errorf("after it has yielded: %+v", s)
		}
		for _, c := range former {
			becomesLost(t, c, coord.ErrReplaced)
			closeClient(t, c)
		}
		for i := range 2 {
			drain(heard)
			other := soon(t, heard, "an announcement")
			yields.Yield(other) // again, because the leader may have changed
			c := n.clientAt("new", "other:1")
			if c.InstanceID() != other.Instance || c.Addrs()[0] != other.Addr {
				t.Errorf("a session of group %s at %v, want %+v", c.InstanceID(), c.Addrs(), other)
			}
			put(t, c, "key", "v")
			closeClient(t, c)
			if i == 0 {
				n.kill(n.leaderAmong(addrs...))
				n.leaderAmong(addrs...)
			}
		}
	})
}

// TestYieldAfterJoining yields to a group that the process has joined since it heard of the group. The process stays a
// member, and refers clients to nobody once it has left.
func TestYieldAfterJoining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.found("member0:1")
		heard := n.listen("other:1")
		leader, other := n.members["member0:1"], n.members["other:1"]
		leader.SetAnnounced([]string{"other:1"}, "one")
		announcement := soon(t, heard, "an announcement")
		other.Yield(announcement)
		if addr, _ := other.elsewhere(); addr != "member0:1" {
			t.Errorf("it refers clients to %q", addr)
		}
		leader.SetCandidates(candidates("other:1"))
		n.await("the other process to join", func() bool { return len(other.Status().Voters) > 0 })
		pass(time.Second) // the process has every entry
		before := other.Status()
		if before.Leader != "member0:1" {
			t.Errorf("its state is %+v", before)
		}
		other.Yield(announcement)
		drain(heard)
		inLoop(other, func() { // an announcement that was on its way
			other.handleAnnouncement(incoming{from: frame{addr: "member0:1", instance: announcement.Instance}})
		})
		pass(10 * time.Second)
		if diff := cmp.Diff(before, other.Status()); diff != "" {
			t.Errorf("its state after a while (-want +got):\n%s", diff)
		}
		if got := drain(heard); len(got) > 0 {
			t.Errorf("a member hears of its own group: %+v", got)
		}
		if err := other.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if addr, _ := other.elsewhere(); addr != "" {
			t.Errorf("after it has left it refers clients to %q", addr)
		}
	})
}

// TestYieldToNobody gives up a group without knowing another one, and founds a new group.
func TestYieldToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.found("member0:1")
		m := n.members["member0:1"]
		former := n.client("former", time.Minute, "member0:1")
		put(t, former, "key", "former")
		m.Yield(Announcement{})
		if s := m.Status(); !cmp.Equal(s, Status{}) {
			t.Errorf("after it has yielded: %+v", s)
		}
		becomesLost(t, former, coord.ErrReplaced)
		closeClient(t, former)
		m.Yield(Announcement{}) // does nothing
		if err := m.Found(); err != nil {
			t.Fatal(err)
		}
		c := n.clientAt("new", "member0:1")
		if c.InstanceID() == former.InstanceID() {
			t.Error("the new group has the instance id of the former one")
		}
		holds(t, c, map[string]string{})
	})
}

// TestYieldAfterClose checks that Yield returns.
func TestYieldAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.found("member0:1")
		m := n.members["member0:1"]
		n.kill("member0:1")
		m.Yield(Announcement{})
		m.SetAnnounced([]string{"other:1"}, "one")
	})
}
