package group

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// TestFound checks that Found returns when the member serves, and not before: a client then gets a session at once.
func TestFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		m := n.start("member0:1")
		loading := n.loadSlowly("member0:1")
		found := make(chan error, 1)
		go func() { found <- m.Found() }()
		goOn := <-loading
		pass(time.Second)
		if len(found) > 0 {
			t.Error("Found has returned before the member serves")
		}
		if err := m.Found(); !errors.Is(err, ErrMember) {
			t.Errorf("Found during Found returns %v", err)
		}
		close(goOn)
		if err := <-found; err != nil {
			t.Fatal(err)
		}
		c := n.clientAt("client", "member0:1")
		put(t, c, "key", "v")
	})
}

// TestFoundAgain checks that a member of a group founds none.
func TestFoundAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		addrs := n.found("member0:1", "member1:1", "member2:1")
		for _, addr := range addrs {
			if err := n.members[addr].Found(); !errors.Is(err, ErrMember) {
				t.Errorf("%s has founded another group: %v", addr, err)
			}
		}
		c := n.client("client", time.Minute, addrs...)
		put(t, c, "key", "v")
	})
}

// TestFoundIsClosed closes a member that has founded a group and does not serve yet.
func TestFoundIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		m := n.start("member0:1")
		loading := n.loadSlowly("member0:1")
		found := make(chan error, 1)
		go func() { found <- m.Found() }()
		goOn := <-loading
		go n.kill("member0:1") // kill waits for the load
		if err := soon(t, found, "the end of Found"); !errors.Is(err, coord.ErrServerClosed) {
			t.Errorf("Found returns %v", err)
		}
		close(goOn)
		synctest.Wait()
		if err := m.Found(); !errors.Is(err, coord.ErrServerClosed) {
			t.Errorf("Found after Close returns %v", err)
		}
	})
}
