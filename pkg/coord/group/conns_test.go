package group

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// reachedConn is a connection that has reached this host at an address.
type reachedConn struct {
	net.Conn
	at netip.AddrPort
}

func (c reachedConn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.at) }

// TestReachedAt checks that a member knows where its clients reach it while it serves.
func TestReachedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		m := n.start("member0:1")
		if got := m.ReachedAt(); len(got) > 0 {
			t.Errorf("a process in no group was reached at %v", got)
		}
		if err := m.Found(); err != nil {
			t.Fatal(err)
		}
		at := netip.MustParseAddrPort("192.0.2.1:29400")
		c, err := coord.Dial(t.Context(), coord.DialOptions{
			Addr: "member0:1", RunID: "run", Conn: func(context.Context) (net.Conn, error) {
				here, there := net.Pipe()
				m.ServeConn(reachedConn{there, at})
				return here, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.ReachedAt(); !slices.Equal(got, []netip.Addr{at.Addr()}) {
			t.Errorf("reached at %v, want %v", got, at.Addr())
		}
		closeClient(t, c)
		m.Yield(Announcement{})
		if got := m.ReachedAt(); len(got) > 0 {
			t.Errorf("a process that has left its group was reached at %v", got)
		}
	})
}

// TestShedPending checks that a member closes connections without a session, whether it serves or not, and no others.
func TestShedPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		addrs := n.found("member0:1", "member1:1", "member2:1")
		c := n.client("client", 0, addrs...)
		for _, addr := range addrs[:2] {
			m := n.members[addr]
			here, there := net.Pipe()
			m.ServeConn(there)
			if shed := m.ShedPending(2); shed != 1 {
				t.Errorf("%s has closed %d connections, want 1", addr, shed)
			}
			if _, err := here.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("a connection without a session goes on: %v", err)
			}
		}
		put(t, c, "key", "v")
		if !n.members["member0:1"].Status().SurvivesLoss {
			t.Error("the members have lost each other")
		}
	})
}
