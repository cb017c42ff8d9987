package group

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

// put commits one key and tries again while the store is not available.
func put(t *testing.T, c coord.Store, key, value string) {
	t.Helper()
	for {
		_, err := c.Commit(t.Context(), nil, []coord.Op{{Key: key, Value: []byte(value)}})
		if err == nil {
			return
		}
		if !errors.Is(err, coord.ErrUnavailable) || c.Err() != nil {
			t.Fatalf("put %s: %v", key, err)
		}
	}
}

// holds checks the contents of the store.
func holds(t *testing.T, c coord.Store, want map[string]string) {
	t.Helper()
	enough := errors.New("enough")
	err := c.Watch(t.Context(), "", func(b coord.Batch) error {
		got := map[string]string{}
		for _, e := range b.Events {
			got[e.Key] = string(e.Value)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the store's keys (-want +got):\n%s", diff)
		}
		return enough
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
}

func closeClient(t testing.TB, c *coord.Client) {
	t.Helper()
	if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestLeaderIsKilled kills the member that leads, again and again, and starts another member each time. The client
// keeps its session and every acknowledged commit.
func TestLeaderIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		addrs := n.found("member0:1", "member1:1", "member2:1")
		c := n.client("client", time.Minute, addrs...)
		want := map[string]string{}
		for i := range 6 {
			key := fmt.Sprintf("key%d", i)
			put(t, c, key, "v")
			want[key] = "v"
			killed := n.leader()
			n.kill(killed)
			began := time.Now()
			if err := c.KeepAlive(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("it took %v until the store answered again", took)
			}
			holds(t, c, want)
			addrs = n.grow(addrs, c)
			n.awaitSpare()
		}
	})
}

// TestDeposedLeader cuts the leader off from the others, but not from one of its clients. The leader must give no
// answer that the others may contradict.
func TestDeposedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		addrs := n.found("member0:1", "member1:1", "member2:1")
		stale, other := n.client("stale", time.Minute, addrs...), n.client("other", time.Minute, addrs...)
		put(t, stale, "key", "old")
		deposed := n.leader()
		heal := n.isolate(deposed, "other")
		// The clients ask before any leader has been deposed.
		bounded, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		results := make(chan error, 3)
		ask := func(what string, call func() error) {
			go func() { results <- call() }()
			synctest.Wait()
			if len(results) > 0 {
				t.Errorf("a leader without a majority has answered %s", what)
			}
		}
		ask("a keep-alive", func() error { return stale.KeepAlive(bounded) })
		ask("a watch", func() error {
			if _, ok := read(bounded, stale, "key"); !ok {
				return coord.ErrUnavailable
			}
			return nil
		})
		ask("a commit", func() error {
			_, err := stale.Commit(bounded, nil, []coord.Op{{Key: "key", Value: []byte("stale")}})
			return err
		})
		put(t, other, "key", "new")
		holds(t, other, map[string]string{"key": "new"})
		heal()
		if err := stale.KeepAlive(t.Context()); err != nil {
			t.Error(err)
		}
		for range cap(results) {
			if err := <-results; err != nil && !errors.Is(err, coord.ErrUnavailable) {
				t.Error(err)
			}
		}
	})
}

// TestLeave replaces every member, one after the other: one member leaves, and another one starts.
func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		addrs := n.found("member0:1", "member1:1", "member2:1")
		c := n.client("client", time.Minute, addrs...)
		put(t, c, "key", "v")
		for i := range 6 {
			leaves := fmt.Sprintf("member%d:1", i)
			if i >= 3 {
				leaves = n.leader()
			}
			addrs = n.grow(addrs, c)
			began := time.Now()
			if err := n.members[leaves].Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
			n.kill(leaves)
			if err := c.KeepAlive(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("member %d left after %v", i, took)
			}
			n.awaitSpare()
		}
		holds(t, c, map[string]string{"key": "v"})
	})
}

// TestTwoMembers checks that a group of two has one voter. The other member cannot survive its loss, but the voter can
// leave.
func TestTwoMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.foundTwo()
		c := n.client("client", time.Minute, "member0:1", "member1:1")
		put(t, c, "key", "v")
		if s := n.members["member0:1"].Status(); !cmp.Equal(s.Voters, []string{"member0:1"}) || s.SurvivesLoss {
			t.Errorf("status %+v", s)
		}
		if err := n.members["member0:1"].Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.kill("member0:1")
		put(t, c, "another", "v")
		holds(t, c, map[string]string{"key": "v", "another": "v"})
		if err := n.members["member1:1"].Leave(t.Context()); !errors.Is(err, errAlone) {
			t.Errorf("the last member left: %v", err)
		}
	})
}

// The only voter that leaves waits for the other member, which answers late, to have the change of voters.
func TestOnlyVoterLeavesSlowMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.foundTwo()
		c := n.client("client", time.Minute, "member0:1", "member1:1")
		put(t, c, "key", "v")
		pass(time.Second)
		release := n.hold("member1:1")
		left := make(chan error)
		go func() { left <- n.members["member0:1"].Leave(t.Context()) }()
		pass(500 * time.Millisecond)
		release()
		if err := <-left; err != nil {
			t.Fatal(err)
		}
		n.kill("member0:1")
		holds(t, c, map[string]string{"key": "v"})
	})
}

// TestFewerVoters kills two of three members, one after the other. The group has fallen back to one voter by then.
func TestFewerVoters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		addrs := n.found("member0:1", "member1:1", "member2:1")
		c := n.client("client", time.Minute, addrs...)
		for left := 3; left > 1; left-- {
			put(t, c, fmt.Sprint("key", left), "v")
			for addr := range n.members {
				if addr != n.leader() {
					n.kill(addr)
					break
				}
			}
			n.await("one voter", func() bool { return len(n.members[n.leader()].Status().Voters) == 1 })
		}
		put(t, c, "key1", "v")
		holds(t, c, map[string]string{"key3": "v", "key2": "v", "key1": "v"})
	})
}

// TestFormerTerm checks that the server of a former term of this member cannot write in a later one.
func TestFormerTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.found("member0:1", "member1:1", "member2:1")
		m := n.members["member0:1"]
		var former *keeper
		known := make(chan bool)
		m.call(func() {
			former = &keeper{m: m, of: m.serving}
			close(known)
		})
		<-known
		if err := former.Write([]coord.Edit{{Bucket: "b", Key: "k", Value: []byte("v")}}); err != nil {
			t.Fatal(err)
		}
		n.transfer("member0:1", "member1:1")
		if err := former.Confirm(); !errors.Is(err, replica.ErrNotLeading) {
			t.Errorf("confirm while another member leads: %v", err)
		}
		n.transfer("member1:1", "member0:1")
		if err := former.Write([]coord.Edit{{Bucket: "b", Key: "k", Value: []byte("w")}}); !errors.Is(err, replica.ErrNotLeading) {
			t.Errorf("a write of a former term: %v", err)
		}
		if err := former.Confirm(); !errors.Is(err, replica.ErrNotLeading) {
			t.Errorf("confirm of a former term: %v", err)
		}
	})
}

// TestFiveVoters loses the leader and another of five voters at once. Then it loses the leader of the three remaining
// voters. The group falls back to one voter.
func TestFiveVoters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{Voters: 5})
		addrs := n.found("member0:1", "member1:1", "member2:1", "member3:1", "member4:1")
		c := n.client("client", time.Minute, addrs...)
		put(t, c, "five", "v")
		n.kill(n.leader())
		for addr := range n.members {
			n.kill(addr)
			break
		}
		began := time.Now()
		put(t, c, "three", "v")
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %v until the store answered again", took)
		}
		n.awaitVoters(3)
		n.kill(n.leader())
		put(t, c, "two", "v")
		n.awaitVoters(1)
		holds(t, c, map[string]string{"five": "v", "three": "v", "two": "v"})
	})
}
