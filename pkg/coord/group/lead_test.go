package group

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/coord"
)

// foundLed founds a group of three, led by member0. The channel gets each server whose member begins to lead.
func foundLed(t *testing.T) (*network, <-chan *coord.Server) {
	t.Helper()
	led := make(chan *coord.Server, 1000)
	n := newNetwork(t, Options{Lead: func(s *coord.Server) func() {
		led <- s
		return func() {}
	}})
	n.found("member0:1", "member1:1", "member2:1")
	return n, led
}

// hold stops the replicas of these members until release is called.
func (n *network) hold(addrs ...string) (release func()) {
	n.t.Helper()
	released := make(chan struct{})
	for _, addr := range addrs {
		n.members[addr].call(func() { <-released })
	}
	return func() { close(released) }
}

// TestServerFails ends a server while one of its writes is on its way, in a term that continues. The next server must
// have every write that the first one acknowledges. No write may come later.
func TestServerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, led := foundLed(t)
		first := <-led
		local, err := first.Local()
		if err != nil {
			t.Fatal(err)
		}
		release := n.hold("member1:1", "member2:1")
		acked := map[string]chan error{"on its way": make(chan error, 1), "behind it": make(chan error, 1)}
		for _, key := range []string{"on its way", "behind it"} {
			go func() {
				_, err := local.Commit(t.Context(), nil, []coord.Op{{Key: key, Value: []byte("v")}})
				acked[key] <- err
			}()
			synctest.Wait()
		}
		first.Fail(errors.New("the test ends it"))
		time.Sleep(300 * time.Millisecond) //nolint:forbidigo // the bubble's time
		release()
		want := map[string]string{}
		for key := range maps.Keys(acked) {
			if err := <-acked[key]; err == nil {
				want[key] = "v"
			}
		}
		if want["on its way"] == "" {
			t.Error("the write that was on its way has failed")
		}
		<-led
		c := n.client("client", time.Minute, "member0:1")
		holds(t, c, want)
	})
}

// TestServerIsClosed closes the server of a member that leads. The member serves again.
func TestServerIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, led := foundLed(t)
		c := n.client("client", time.Minute, "member0:1")
		put(t, c, "key", "v")
		if err := (<-led).Close(); err != nil {
			t.Error(err)
		}
		n.await("another server", func() bool { return len(led) > 0 })
		if !n.members["member0:1"].Status().Leading {
			t.Error("another member leads")
		}
		holds(t, c, map[string]string{"key": "v"})
	})
}

// TestWriteDuringTransfer writes while the leadership is handed to a member that does not take it. The write waits
// until the transfer has ended.
func TestWriteDuringTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, led := foundLed(t)
		<-led
		c := n.client("client", time.Minute, "member0:1")
		release := n.hold("member1:1")
		m := n.members["member0:1"]
		m.call(func() {
			for _, id := range m.replica.Status().Voters {
				if m.addrOf(id) == "member1:1" {
					if err := m.replica.TransferTo(id); err != nil {
						t.Error(err)
					}
				}
			}
		})
		put(t, c, "key", "v")
		if len(led) > 0 {
			t.Error("the write has ended the server")
		}
		release()
		holds(t, c, map[string]string{"key": "v"})
	})
}

// TestLargeWrites lets 24 MiB of commits wait for the other members, which does not end the server.
func TestLargeWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, led := foundLed(t)
		server := <-led
		local, err := server.Local()
		if err != nil {
			t.Fatal(err)
		}
		release := n.hold("member1:1", "member2:1")
		var running sync.WaitGroup
		for i := range 24 {
			running.Go(func() {
				op := coord.Op{Key: fmt.Sprint(i), Value: make([]byte, coord.MaxCommit-8)}
				if _, err := local.Commit(t.Context(), nil, []coord.Op{op}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		release()
		running.Wait()
		if len(led) > 0 || server.Err() != nil {
			t.Errorf("the server has ended: %v", server.Err())
		}
	})
}

// TestLargeSession ends a session that has 20 MB of keys, which is one write. It does not end the server.
func TestLargeSession(t *testing.T) {
	testenv.InSoak(t)
	synctest.Test(t, func(t *testing.T) {
		n, led := foundLed(t)
		server := <-led
		c := n.client("client", time.Minute, "member0:1")
		const long = 1000
		for i := range 160 {
			var ops []coord.Op
			for j := range coord.MaxOps {
				ops = append(ops, coord.Op{Key: fmt.Sprintf("%*d", long, i*coord.MaxOps+j), Owned: true})
			}
			if _, err := c.Commit(t.Context(), nil, ops); err != nil {
				t.Fatal(err)
			}
		}
		closeClient(t, c)
		if len(led) > 0 || server.Err() != nil {
			t.Errorf("the server has ended: %v", server.Err())
		}
	})
}

// loadSlowly delays the servers of these members. Each load sends a channel on loading, and waits until it receives
// from that channel.
func (n *network) loadSlowly(addrs ...string) (loading <-chan chan<- struct{}) {
	n.t.Helper()
	loads := make(chan chan<- struct{}, 1000)
	for _, addr := range addrs {
		m := n.members[addr]
		m.call(func() {
			m.newServer = func(k coord.SharedKeeper, from coord.Contents, o coord.ServerOptions) (*coord.Server, error) {
				goOn := make(chan struct{})
				loads <- goOn
				<-goOn
				return coord.NewSharedServer(k, from, o)
			}
		})
	}
	return loads
}

// TestSlowLoad checks that a new leader that needs time to load the contents continues to lead meanwhile.
func TestSlowLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{Voters: 5})
		addrs := n.found("member0:1", "member1:1", "member2:1", "member3:1", "member4:1")
		c := n.client("client", time.Minute, addrs...)
		put(t, c, "key", "v")
		loading := n.loadSlowly(addrs[1:]...)
		n.kill("member0:1")
		goOn := <-loading
		time.Sleep(5 * time.Second) //nolint:forbidigo // the bubble's time
		if len(loading) > 0 {
			t.Error("another member leads too")
			for len(loading) > 0 {
				close(<-loading)
			}
		}
		close(goOn)
		holds(t, c, map[string]string{"key": "v"})
	})
}

// TestLateLoad checks that a server that has loaded the contents too late never serves.
func TestLateLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, led := foundLed(t)
		<-led
		c := n.client("client", time.Minute, "member0:1", "member1:1", "member2:1")
		put(t, c, "key", "v")
		loading := n.loadSlowly("member1:1")
		n.transfer("member0:1", "member1:1")
		goOn := <-loading
		n.transfer("member1:1", "member2:1")
		put(t, c, "key", "w")
		<-led
		close(goOn)
		synctest.Wait()
		if len(led) > 0 {
			t.Error("the late server leads")
		}
		holds(t, c, map[string]string{"key": "w"})
	})
}

// transfer hands the leadership from one member to another.
func (n *network) transfer(from, to string) {
	n.t.Helper()
	m := n.members[from]
	m.call(func() {
		for _, id := range m.replica.Status().Voters {
			if m.addrOf(id) == to {
				if err := m.replica.TransferTo(id); err != nil {
					n.t.Error(err)
				}
			}
		}
	})
	n.await("the other leader", func() bool { return n.members[to].Status().Leading })
}
