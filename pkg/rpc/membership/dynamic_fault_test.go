package membership

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// A member dies at each operation of its join, carried out or not. It is no member in the end, and the others continue.
func TestDynamicDiesJoining(t *testing.T) {
	testDeaths(t, (*Dynamic).Join, func(g *group) *host {
		g.join("b")
		return g.newHost("c")
	})
}

// A member dies at each operation of its Leave, carried out or not.
func TestDynamicDiesLeaving(t *testing.T) {
	testDeaths(t, (*Dynamic).Leave, func(g *group) *host {
		c := g.join("c")
		g.join("b")
		g.drop(c)
		return c
	})
}

// testDeaths kills the host of begin at each operation of do, in a group with member a.
func testDeaths(t *testing.T, do func(*Dynamic, context.Context) error, begin func(*group) *host) {
	t.Helper()
	for _, done := range []bool{false, true} {
		for n, finished := 1, false; !finished; n++ {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, memoryStore())
				g.join("a")
				finished = killDuring(g, begin(g), n, done, do)
				g.join("c")
				g.join("d")
				g.waitViews(fmt.Sprintf("the death at operation %d", n))
			})
		}
	}
}

// killDuring kills a process in its n-th operation of do. It reports whether do finished before that.
func killDuring(g *group, h *host, n int, done bool, do func(*Dynamic, context.Context) error) bool {
	ctx, cancel := context.WithCancel(g.t.Context())
	defer cancel()
	died := make(chan struct{})
	h.store.set(func(count int) outcome {
		if count == n {
			close(died)
			g.net.change(func() { h.dead = true })
			if done {
				return unanswered
			}
		}
		if count >= n {
			return hung
		}
		return carriedOut
	})
	result := make(chan error, 1)
	go func() { result <- do(h.Dynamic, ctx) }()
	finished := false
	select {
	case <-died:
		sleep(ctx, 10*time.Second) // Long enough for others to take over its lock, but nobody has tried yet.
		cancel()
		h.Close()
		<-result
	case err := <-result:
		finished = true
		if err != nil {
			g.t.Errorf("without a fault: %v", err)
		}
		g.net.change(func() { h.dead = true })
		h.Close()
	}
	synctest.Wait()
	g.neighborsSuspect(h.self.Incarnation)
	return finished
}

// Each operation of a join fails, carried out or not. Either the join succeeds, or nothing is left of it.
func TestDynamicFaultsJoining(t *testing.T) {
	for _, how := range []outcome{failed, unanswered} {
		for n, finished := 1, false; !finished; n++ {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, memoryStore())
				g.join("a")
				g.join("b")
				h := g.newHost("c")
				h.store.setAt(n, how)
				err := h.Join(t.Context())
				finished = h.store.operations() < n
				if err == nil {
					g.live = append(g.live, h)
				} else if !errors.Is(err, kvstore.ErrConnection) {
					t.Errorf("operation %d: %v", n, err)
				}
				synctest.Wait()
				g.checkViews(fmt.Sprintf("a fault in operation %d", n))
				g.join("d")
				g.checkViews("the next join")
			})
		}
	}
}

// While no member reaches the store, the group does not change and nobody is evicted. Then the group continues.
func TestDynamicStoreDown(t *testing.T) {
	for _, how := range []outcome{failed, hung} {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t, memoryStore())
			for _, name := range []string{"a", "b", "c", "d"} {
				g.join(name)
			}
			broken := g.live[2]
			for _, h := range g.live {
				h.store.set(func(int) outcome { return how })
			}
			g.net.change(func() { g.net.cuts[[2]uint64{broken.Self().Incarnation, 0}] = true })
			g.neighborsSuspect(broken.Self().Incarnation)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := g.live[3].Leave(ctx); err == nil {
				t.Error("left without a store")
			}
			g.checkViews("the loss of the store")
			for _, h := range g.live {
				h.store.set(nil)
			}
			sleep(t.Context(), time.Minute)
			g.net.change(func() { clear(g.net.cuts) })
			g.checkViews("the store's return")
			g.leave(g.live[3])
			g.join("e")
			g.checkViews("a leave and a join")
		})
	}
}
