package group

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestExpect checks that a client that hears of a new leader connects to it at once. Without that, a client pauses
// first.
func TestExpect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		addrs := n.found("member0:1", "member1:1", "member2:1")
		c := n.client("client", time.Minute, addrs...)
		for range 20 { // the pauses are random
			former := n.leader()
			heal := n.isolate(former, "client")
			leader := former
			n.await("another leader", func() bool {
				for addr, m := range n.members {
					if addr != former && m.Status().Leading {
						leader = addr
					}
				}
				return leader != former
			})
			began := time.Now()
			c.Expect(leader)
			put(t, c, "key", leader)
			if took := time.Since(began); took > 60*time.Millisecond {
				t.Errorf("the client has found the leader after %v", took)
			}
			heal()
			n.awaitSpare()
		}
	})
}
