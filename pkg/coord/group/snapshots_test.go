package group

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// joinSlowly founds a group with 3 MiB of contents, and starts another member on a network that needs 12 seconds to
// carry them. It kills a voter, which the new member replaces, and calls meanwhile when a quarter of the snapshot has
// been sent. It returns how many bytes were sent to the new member and how long that took.
func joinSlowly(t *testing.T, meanwhile func(*network)) (sent int64, took time.Duration) {
	t.Helper()
	n := newNetwork(t, Options{})
	addrs := n.found("member0:1", "member1:1", "member2:1")
	c := n.client("client", time.Minute, addrs...)
	for i := range 4 {
		ops := []coord.Op{{Key: fmt.Sprint(i), Value: make([]byte, 3<<18)}}
		if _, err := c.Commit(t.Context(), nil, ops); err != nil {
			t.Fatal(err)
		}
	}
	closeClient(t, c)
	synctest.Wait() // all followers have the contents
	n.rate.Store(256 << 10)
	began := time.Now()
	n.kill("member2:1")
	n.grow(addrs)
	n.await("a snapshot on its way", func() bool { return n.sentTo("member3:1") > 3*n.rate.Load() })
	meanwhile(n)
	n.await("three voters", func() bool { return n.members["member0:1"].Status().SurvivesLoss })
	took = time.Since(began)
	n.rate.Store(0)
	return n.sentTo("member3:1"), took
}

// sentTo returns how many bytes were sent to a member.
func (n *network) sentTo(addr string) (sent int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.conns {
		if l.ends[1] == addr {
			sent += l.sent.Load()
		}
	}
	return sent
}

// TestSlowSnapshot checks that a new member joins although its snapshot takes longer than a member may be silent, and
// longer than a snapshot may stay unacknowledged.
func TestSlowSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent, took := joinSlowly(t, func(*network) {})
		if sent > 4<<20 || took > 20*time.Second {
			t.Errorf("%d bytes were sent in %v", sent, took)
		}
	})
}

// TestBrokenSnapshot breaks the connections to a new member while it receives a snapshot. It soon receives another one.
func TestBrokenSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, took := joinSlowly(t, func(n *network) {
			n.breakConns(func(l *link) bool { return l.ends[1] == "member3:1" })
		})
		if took > 22*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
