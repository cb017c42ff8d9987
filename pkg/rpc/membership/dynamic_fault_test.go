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

// TestDynamicDiesJoining: a joiner that dies at any of its operations, done or not, is no member in the end, and others go on.
func TestDynamicDiesJoining(t *testing.T) {
	for _, done := range []bool{false, true} {
		for n := 1; ; n++ {
			finished := false
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, memory())
				g.join("a")
				g.join("b")
				finished = dies(g, g.newHost("c"), n, done, (*Dynamic).Join)
				g.join("c")
				g.join("d")
				g.converge(fmt.Sprintf("the death at operation %d", n))
			})
			if finished {
				break
			}
		}
	}
}

// TestDynamicDiesLeaving is the same for one that leaves.
func TestDynamicDiesLeaving(t *testing.T) {
	for _, done := range []bool{false, true} {
		for n := 1; ; n++ {
			finished := false
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, memory())
				g.join("a")
				c := g.join("c")
				g.join("b")
				g.drop(c)
				finished = dies(g, c, n, done, (*Dynamic).Leave)
				g.join("c")
				g.join("d")
				g.converge(fmt.Sprintf("the death at operation %d", n))
			})
			if finished {
				break
			}
		}
	}
}

// dies lets a process die in its n-th operation of do, and tells whether do has finished before.
func dies(g *group, h *host, n int, done bool, do func(*Dynamic, context.Context) error) bool {
	ctx, cancel := context.WithCancel(g.t.Context())
	defer cancel()
	died := make(chan struct{})
	h.store.set(func(count int) fate {
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
		after(ctx, 10*time.Second) // Long enough for others to break its lock, which nobody does yet.
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
	g.noticed(h.self.Incarnation)
	return finished
}

// TestDynamicFaultsJoining: whichever operation of a join fails, carried out or not, the join succeeds or nothing is left of it.
func TestDynamicFaultsJoining(t *testing.T) {
	for _, how := range []fate{failed, unanswered} {
		for n, finished := 1, false; !finished; n++ {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, memory())
				g.join("a")
				g.join("b")
				h := g.newHost("c")
				h.store.set(func(count int) fate {
					if count == n {
						return how
					}
					return carriedOut
				})
				err := h.Join(t.Context())
				finished = h.store.operations() < n
				if err == nil {
					g.live = append(g.live, h)
				} else if !errors.Is(err, kvstore.ErrConnection) {
					t.Errorf("operation %d: %v", n, err)
				}
				synctest.Wait()
				g.exact(fmt.Sprintf("a fault in operation %d", n))
				g.join("d")
				g.exact("the next join")
			})
		}
	}
}

// TestDynamicStoreDown: while nobody reaches the store the group stands still, and nobody is evicted; then it goes on.
func TestDynamicStoreDown(t *testing.T) {
	for _, how := range []fate{failed, hung} {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t, memory())
			for _, name := range []string{"a", "b", "c", "d"} {
				g.join(name)
			}
			broken := g.live[2]
			for _, h := range g.live {
				h.store.set(func(int) fate { return how })
			}
			g.net.change(func() { g.net.cuts[[2]uint64{broken.Self().Incarnation, 0}] = true })
			g.noticed(broken.Self().Incarnation)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := g.live[3].Leave(ctx); err == nil {
				t.Error("left without a store")
			}
			g.exact("the loss of the store")
			for _, h := range g.live {
				h.store.set(nil)
			}
			after(t.Context(), time.Minute)
			g.net.change(func() { clear(g.net.cuts) })
			g.exact("the store's return")
			g.leave(g.live[3])
			g.join("e")
			g.exact("a leave and a join")
		})
	}
}
