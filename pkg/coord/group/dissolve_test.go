package group

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

const endReason = "the job has ended"

// dissolves makes the leader m dissolve the group, within a second.
func dissolves(t *testing.T, m *Member) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return m.Dissolve(ctx, endReason)
}

// becomesEnded checks that the client loses its session within moments because the group was dissolved.
func becomesEnded(t *testing.T, c *coord.Client) {
	t.Helper()
	becomesLost(t, c, coord.ErrUnavailable)
	if err := c.Err(); errors.Is(err, coord.ErrReplaced) || err == nil || !strings.HasSuffix(err.Error(), endReason) {
		t.Errorf("the session was lost with %v, want %s", err, endReason)
	}
}

// staysEnded checks for a while that none of these members is in a group.
func (n *network) staysEnded(addrs ...string) {
	n.t.Helper()
	for range 300 {
		for _, addr := range addrs {
			if s := n.members[addr].Status(); !cmp.Equal(s, Status{}) {
				n.t.Fatalf("%s after the group's end: %+v", addr, s)
			}
		}
		pass(100 * time.Millisecond)
	}
}

// TestDissolve ends a group while its clients are at work. They learn of the end at once, and no process leads or is a
// member any more.
func TestDissolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		addrs := []string{"member0:1", "member1:1", "member2:1"}
		recorded := map[string]*changes{}
		for _, addr := range addrs {
			recorded[addr] = n.startRecorded(addr)
			n.members[addr].SetCandidates(candidates(addrs...))
		}
		if err := n.members["member0:1"].Found(); err != nil {
			t.Fatal(err)
		}
		n.awaitVoters(3)
		n.awaitSpare()
		clients := []*coord.Client{
			n.client("one", time.Minute, "member0:1"), n.client("all", time.Minute, addrs...),
			n.client("commits", time.Minute, addrs...), n.client("watches", time.Minute, addrs...),
		}
		put(t, clients[0], "key", "v")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		working := make(chan error, 2)
		go func() {
			for {
				if _, err := clients[2].Commit(ctx, nil, []coord.Op{{Key: "key"}}); err != nil {
					working <- err
					return
				}
				pass(time.Millisecond)
			}
		}()
		go func() { working <- clients[3].Watch(ctx, "", func(coord.Batch) error { return nil }) }()
		pass(100 * time.Millisecond)
		before := map[string]int{}
		for addr, c := range recorded {
			before[addr] = len(c.list())
		}
		began := time.Now()
		if err := dissolves(t, n.members["member0:1"]); err != nil {
			t.Error(err)
		}
		for _, c := range clients {
			becomesEnded(t, c)
		}
		for range cap(working) {
			if err := soon(t, working, "the end of a call"); !errors.Is(err, coord.ErrUnavailable) {
				t.Errorf("a call ended with %v", err)
			}
		}
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("the end took %v", took)
		}
		synctest.Wait()
		n.staysEnded(addrs...)
		for addr, c := range recorded {
			if diff := cmp.Diff([]Status{{}}, c.list()[before[addr]:]); diff != "" {
				t.Errorf("changes of %s (-want +got):\n%s", addr, diff)
			}
		}
	})
}

// TestDissolveOfFollower checks that a member which does not lead, or is in no group, dissolves nothing.
func TestDissolveOfFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		addrs := n.found("member0:1", "member1:1", "member2:1")
		c := n.client("client", time.Minute, addrs...)
		n.start("alone:1")
		for _, addr := range []string{"member1:1", "alone:1"} {
			if err := dissolves(t, n.members[addr]); err == nil {
				t.Errorf("%s has dissolved the group", addr)
			}
		}
		put(t, c, "key", "v")
		before := n.members["member0:1"].Status()
		pass(10 * time.Second)
		if diff := cmp.Diff(before, n.members["member0:1"].Status()); diff != "" {
			t.Errorf("the group's state (-want +got):\n%s", diff)
		}
		if err := n.members["member1:1"].Leave(t.Context()); err != nil { // the process may still join and leave
			t.Error(err)
		}
		n.kill("alone:1")
		if err := dissolves(t, n.members["member0:1"]); err != nil {
			t.Error(err)
		}
		n.kill("member0:1")
		if err := n.members["member1:1"].Close(); err != nil {
			t.Error(err)
		}
		if err := dissolves(t, n.members["member1:1"]); !errors.Is(err, coord.ErrServerClosed) {
			t.Errorf("Dissolve after Close returns %v", err)
		}
	})
}

// TestDissolveWithDead dissolves a group that has lost a member. The others learn of the end at once. Dissolve waits
// only for a member that may be alive, and not beyond its context.
func TestDissolveWithDead(t *testing.T) {
	for name, tc := range map[string]struct {
		lose   func(*network)
		since  time.Duration
		took   time.Duration
		result error
	}{
		"killed just now": {lose: func(n *network) { n.kill("member2:1") }},
		"killed":          {lose: func(n *network) { n.kill("member2:1") }, since: time.Second},
		"silent for a moment": {
			lose: func(n *network) { n.isolate("member2:1") }, since: 300 * time.Millisecond,
			took: time.Second, result: context.DeadlineExceeded,
		},
		"silent": {lose: func(n *network) { n.isolate("member2:1") }, since: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, Options{})
				addrs := n.found("member0:1", "member1:1", "member2:1")
				c := n.client("client", time.Minute, addrs...)
				synctest.Wait() // nothing is on its way
				tc.lose(n)
				pass(tc.since)
				began := time.Now()
				result := make(chan error, 1)
				go func() { result <- dissolves(t, n.members["member0:1"]) }()
				synctest.Wait()
				for _, addr := range addrs[:2] {
					if s := n.members[addr].Status(); !cmp.Equal(s, Status{}) {
						t.Errorf("%s after the group's end: %+v", addr, s)
					}
				}
				becomesEnded(t, c)
				if err := <-result; !errors.Is(err, tc.result) {
					t.Errorf("Dissolve returned %v, want %v", err, tc.result)
				}
				if took := time.Since(began); took != tc.took {
					t.Errorf("Dissolve took %v, want %v", took, tc.took)
				}
				n.staysEnded(addrs[:2]...)
				if m := n.members["member2:1"]; m != nil && m.Status().Leading {
					t.Error("the silent member leads")
				}
			})
		})
	}
}

// TestDissolvedForGood checks that the process that dissolved a group joins no other group, even as a candidate. Former
// followers do join.
func TestDissolvedForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		addrs := n.found("member0:1", "member1:1", "member2:1")
		if err := dissolves(t, n.members["member0:1"]); err != nil {
			t.Fatal(err)
		}
		n.start("other:1").SetCandidates(candidates(addrs...))
		if err := n.members["other:1"].Found(); err != nil {
			t.Fatal(err)
		}
		n.await("the followers to join another group", func() bool {
			return n.members["member1:1"].Status().Member && n.members["member2:1"].Status().Member
		})
		n.staysEnded("member0:1")
	})
}

// TestDissolverIsKilled kills the leader while it dissolves the group, before it has notified anybody. Another member
// leads, the client keeps its session there, and that member can dissolve the group.
func TestDissolverIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		addrs := n.found("member0:1", "member1:1", "member2:1")
		c := n.client("client", time.Minute, addrs...)
		put(t, c, "key", "v")
		n.isolate("member0:1", "client")
		pass(300 * time.Millisecond)
		result := make(chan error, 1)
		go func() { result <- n.members["member0:1"].Dissolve(t.Context(), endReason) }()
		synctest.Wait()
		n.kill("member0:1")
		if err := soon(t, result, "the end of Dissolve"); !errors.Is(err, coord.ErrServerClosed) {
			t.Errorf("Dissolve returned %v", err)
		}
		next := n.leaderAmong(addrs[1:]...)
		holds(t, c, map[string]string{"key": "v"})
		if c.Err() != nil {
			t.Errorf("the session was lost with %v", c.Err())
		}
		pass(time.Second) // the next leader knows that the former one is silent
		if err := dissolves(t, n.members[next]); err != nil {
			t.Error(err)
		}
		becomesEnded(t, c)
		synctest.Wait()
		n.staysEnded(addrs[1:]...)
	})
}
