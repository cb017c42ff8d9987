package coord

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestEndSessionInGroup ends the session of a dead client whose store may be at three addresses.
func TestEndSessionInGroup(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*testGroup)
		others []string
		ends   bool
		within time.Duration
	}{
		{name: "at the first address", others: groupAddrs[1:], change: func(*testGroup) {}, ends: true},
		{
			name: "at the last address", others: groupAddrs[1:], ends: true,
			change: func(g *testGroup) { g.move("c:1", nil) },
		},
		{
			name: "the others do not answer", others: groupAddrs[1:], ends: true,
			change: func(g *testGroup) { g.vanish("a:1"); g.vanish("b:1"); g.move("c:1", nil) },
		},
		{
			name: "at a named address", others: []string{"b:1"}, ends: true,
			change: func(g *testGroup) { g.vanish("a:1"); g.move("c:1", map[string]string{"b:1": "c:1"}) },
		},
		{
			name: "nobody serves", others: groupAddrs[1:],
			change: func(g *testGroup) { g.move("", map[string]string{"b:1": "c:1", "c:1": "b:1"}) },
		},
		{
			name: "nobody answers", others: groupAddrs[1:], within: 5 * time.Second,
			change: func(g *testGroup) { g.vanish("a:1"); g.vanish("b:1"); g.vanish("c:1") },
		},
		{name: "one address that does not serve", change: func(g *testGroup) { g.move("b:1", nil) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newTestGroup(t)
				c := g.dial(t, time.Hour)
				g.networks["a:1"].kill() // the client is dead
				synctest.Wait()
				g.networks["a:1"].set(func() { g.networks["a:1"].dead = false })
				c.lose(errClosed)
				tc.change(g)
				opts := c.opts
				began := time.Now()
				for range 2 { // the second time, a session that was ended is gone
					err := EndSession(t.Context(), opts, c.Token(), tc.others...)
					if tc.ends != (err == nil) || err != nil && !errors.Is(err, ErrUnavailable) {
						t.Errorf("EndSession returned %v", err)
					}
				}
				if took := time.Since(began); took != 2*tc.within {
					t.Errorf("two attempts took %v, want %v", took, 2*tc.within)
				}
				if left := g.serving.Sessions(); (left == 0) != tc.ends {
					t.Errorf("%d sessions are left", left)
				}
				for _, addr := range groupAddrs {
					if n := g.attempts(addr); n > 4 {
						t.Errorf("%d attempts at %s", n, addr)
					}
				}
			})
		})
	}
}

// TestEndSessionErrors puts other jobs' stores at the addresses. An error that may pass wins.
func TestEndSessionErrors(t *testing.T) {
	_, one := startServer(t, ServerOptions{RunID: "one"})
	_, two := startServer(t, ServerOptions{RunID: "two"})
	nobody := startPort(t)
	nobody.stop()
	opts := DialOptions{Addr: one, RunID: "r"}
	for range 10 { // the attempts may end in any order
		err := EndSession(t.Context(), opts, "id.token", two)
		if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Addr != one {
			t.Errorf("two final refusals: %v", err)
		}
		err = EndSession(t.Context(), opts, "id.token", two, nobody.addr)
		if failed, ok := errors.AsType[*DialError](err); !ok || failed.Addr != nobody.addr {
			t.Errorf("an error that may pass beside final ones: %v", err)
		}
	}
}
