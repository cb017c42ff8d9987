package membership

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// memoryStore returns a function whose stores share their content.
func memoryStore() func() kvstore.Store {
	store := kvstore.NewHashStore()
	return func() kvstore.Store { return store }
}

// run performs random joins, leaves, kills and link failures, and checks every member's view after each.
func run(g *group, seed uint64, operations int) {
	random := rand.New(rand.NewPCG(seed, 2))
	for i := range operations {
		what := fmt.Sprintf("operation %d of seed %d", i, seed)
		n := len(g.live)
		var one *host
		if n > 0 {
			one = g.live[random.IntN(n)]
		}
		switch choice := random.IntN(10); {
		case n < 2 || choice < 4 && n < 12:
			g.join(fmt.Sprintf("w%d", i))
			g.checkViews(what + ", a join")
		case choice < 6:
			g.leave(one)
			g.checkViews(what + ", a leave")
		case choice < 8:
			g.kill(one)
			g.waitViews(what + ", a kill")
		case choice == 8:
			// Two members die, and a third worker joins under the name of one. Anybody may notice first.
			g.kill(one)
			g.kill(g.live[random.IntN(len(g.live))])
			g.join(one.Self().Name)
			g.waitViews(what + ", two kills and a join")
		default: // A link fails. Both members are alive.
			other := g.live[random.IntN(n)]
			if other == one {
				continue
			}
			link := [2]uint64{one.Self().Incarnation, other.Self().Incarnation}
			g.net.change(func() { g.net.cuts[link] = true })
			var running sync.WaitGroup
			running.Go(func() { one.resolve(g.t.Context(), link[1]) })
			running.Go(func() { other.resolve(g.t.Context(), link[0]) })
			running.Wait()
			g.net.change(func() { delete(g.net.cuts, link) })
			g.checkViews(what + ", a cut")
		}
	}
}

func TestDynamicRandom(t *testing.T) {
	for seed := range testenv.Repeat(t, 3, 500) {
		synctest.Test(t, func(t *testing.T) { run(newGroup(t, memoryStore()), uint64(seed), 250) })
	}
}

// A worker that reaches nobody fails its own join only.
func TestDynamicJoinerReachesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memoryStore())
		g.join("a")
		g.join("b")
		isolated := g.newHost("c")
		g.net.cuts[[2]uint64{isolated.Self().Incarnation, 0}] = true
		err := isolated.Join(t.Context())
		var unsynced *ConnectionError
		if !errors.As(err, &unsynced) || unsynced.Name != "a" {
			t.Errorf("join: %v", err)
		}
		if isolated.Err() != nil {
			t.Errorf("its state: %v", isolated.Err())
		}
		synctest.Wait()
		g.checkViews("a join that reaches nobody")
		g.join("c")
		g.checkViews("the next join")
	})
}

// A member that reaches nobody suspects all others, and all others suspect it. All are alive, so nobody is evicted.
func TestDynamicMutualSuspicion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memoryStore())
		for _, name := range []string{"a", "b", "c", "d"} {
			g.join(name)
		}
		isolated := g.live[1].Self().Incarnation
		g.net.change(func() { g.net.cuts[[2]uint64{isolated, 0}] = true })
		for _, h := range g.live {
			for _, o := range g.live {
				h.Suspect(o.Self().Incarnation)
			}
		}
		sleep(t.Context(), time.Minute)
		g.checkViews("suspicions of all by all")
		g.net.change(func() { clear(g.net.cuts) })
		for len(g.live) > 0 {
			g.leave(g.live[0])
		}
		store := kvstore.NewPrefixStore("rpc/test", g.dial())
		for incarnation := range g.last {
			for _, key := range []string{queryKeyOf(incarnation + 1), replyKeyOf(incarnation + 1)} {
				if there, _ := store.Check(t.Context(), key); there {
					t.Errorf("key %q is left", key)
				}
			}
		}
	})
}

// A paused member is evicted after the ReplyTimeout, and learns this when it continues.
func TestDynamicPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memoryStore())
		g.join("a")
		stopped := g.join("b")
		g.join("c")
		began := time.Now()
		g.net.change(func() { stopped.paused = true })
		stopped.store.set(func(int) outcome { return hung })
		g.drop(stopped)
		g.neighborsSuspect(stopped.Self().Incarnation)
		g.waitViews("the eviction")
		if took := time.Since(began); took < g.opts.ReplyTimeout || took > g.opts.SyncTimeout+2*g.opts.ReplyTimeout {
			t.Errorf("evicted after %v", took)
		}
		for i := range 2 * keptEntries { // The entry of its eviction is deleted meanwhile.
			g.leave(g.join(fmt.Sprintf("x%d", i)))
		}
		g.net.change(func() { stopped.paused = false })
		stopped.store.set(nil)
		<-stopped.Done()
		if !errors.Is(stopped.Err(), ErrEvicted) || !errors.Is(stopped.WaitVersion(t.Context(), 1), ErrEvicted) {
			t.Errorf("it ended with %v", stopped.Err())
		}
		healthy := g.live[0]
		_, err := stopped.evict(t.Context(), stopped.tracker.current(), healthy.Self())
		if !errors.Is(err, ErrEvicted) {
			t.Errorf("it evicts others: %v", err)
		}
		synctest.Wait()
		g.checkViews("its end")
	})
}

// A member that can be reached, but sees changes late or never, delays joins only briefly and stays a member.
func TestDynamicSlowStoreConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memoryStore())
		g.join("a")
		slow := g.join("b")
		synctest.Wait() // b waits for the next change.
		slow.store.set(func(int) outcome { return hung })
		g.join("c") // b still sees this change, because its wait has already started.
		g.checkViews("a join")
		time.AfterFunc(3*g.opts.SyncTimeout/2, func() { slow.store.set(nil) })
		g.join("d")
		g.checkViews("a late view")
		synctest.Wait() // b waits for the next change.
		slow.store.set(func(int) outcome { return hung })
		g.join("e")
		g.join("f")
		if sees := len(slow.View().Members); sees != 5 {
			t.Errorf("it sees %d members", sees)
		}
		slow.store.set(nil)
		g.waitViews("joins without a view")
	})
}

// A member that was paused unnoticed for more than keptEntries changes recovers.
func TestDynamicFarBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memoryStore())
		g.join("a")
		behind := g.join("b")
		behind.store.set(func(int) outcome { return hung })
		g.opts.SyncTimeout = time.Millisecond
		for i := range keptEntries {
			g.leave(g.join(fmt.Sprintf("x%d", i)))
		}
		if there, _ := g.dial().Check(t.Context(), "rpc/test/"+entryKey(behind.View().Version+1)); there {
			t.Error("the entry that it waits for is still there")
		}
		behind.store.set(nil)
		g.join("c")
		g.checkViews("a pause")
	})
}

func TestDynamicNameTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memoryStore())
		first := g.join("a")
		var taken *NameTakenError
		if err := g.newHost("a").Join(t.Context()); !errors.As(err, &taken) {
			t.Errorf("second of a name: %v", err)
		}
		g.checkViews("a refusal")
		g.net.change(func() { first.dead = true })
		first.Close()
		g.drop(first)
		if id := g.join("a").Self().ID; id != 1 {
			t.Errorf("id %d", id)
		}
		g.checkViews("a join in place of a dead one")
	})
}

func TestDynamicOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memoryStore())
		h := g.newHost("a")
		if err := h.Leave(t.Context()); !errors.Is(err, errNotMember) {
			t.Errorf("leave before join: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.WaitVersion(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("reach before join: %v", err)
		}
		if err := h.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := h.Join(t.Context()); !errors.Is(err, errJoined) {
			t.Errorf("second join: %v", err)
		}
		if err := h.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		<-h.Done()
		if err := h.WaitVersion(t.Context(), 1); h.Err() != nil || !errors.Is(err, ErrShutdown) {
			t.Errorf("after leave: %v, reach %v", h.Err(), err)
		}
		closed := g.newHost("b")
		closed.Close()
		if err := closed.Join(t.Context()); !errors.Is(err, ErrShutdown) {
			t.Errorf("join after close: %v", err)
		}
	})
}

// Close ends a join that waits for the lock.
func TestDynamicCloseEndsJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memoryStore())
		g.join("a")
		h := g.newHost("b")
		newLock(kvstore.NewPrefixStore("rpc/test", g.dial()), 99).with(t.Context(), func(ctx context.Context) error {
			result := make(chan error)
			go func() { result <- h.Join(ctx) }()
			synctest.Wait()
			h.Close()
			if err := <-result; !errors.Is(err, ErrShutdown) || !strings.Contains(err.Error(), `"b"`) {
				t.Errorf("join: %v", err)
			}
			return nil
		})
		g.checkViews("a join that was closed")
	})
}

// Thousands of changes leave a bounded number of keys in the store.
func TestDynamicKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memoryStore())
		g.join("a")
		g.join("b")
		n := testenv.Repeat(t, 200, 850) // at least twice keptEntries
		for i := range 2 * n {
			h := g.join(fmt.Sprintf("x%d", i))
			if i%7 == 0 {
				g.kill(h)
				g.waitViews("a kill")
				continue
			}
			g.leave(h)
		}
		for i := range n {
			g.leave(g.join(fmt.Sprintf("y%d", i)))
		}
		if version := g.live[0].View().Version; version < int64(6*n) {
			t.Errorf("%d changes", version)
		}
		const most = keptEntries + keptReleases + 8
		if keys, _ := g.dial().NumKeys(t.Context()); keys > most {
			t.Errorf("%d keys, more than %d", keys, most)
		}
	})
}
