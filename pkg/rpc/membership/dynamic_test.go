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

// memory returns what makes stores that share one content.
func memory() func() kvstore.Store {
	store := kvstore.NewHashStore()
	return func() kvstore.Store { return store }
}

// run makes random joins, leaves, kills and cut links, and checks every member's view after each.
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
			g.exact(what + ", a join")
		case choice < 6:
			g.leave(one)
			g.exact(what + ", a leave")
		case choice < 8:
			g.kill(one)
			g.converge(what + ", a kill")
		case choice == 8: // Two at once, and a third under the name of one of them, which may be first to find out.
			g.kill(one)
			g.kill(g.live[random.IntN(len(g.live))])
			g.join(one.Self().Name)
			g.converge(what + ", two kills and a join")
		default: // A link breaks. Both live.
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
			g.exact(what + ", a cut")
		}
	}
}

func TestDynamicRandom(t *testing.T) {
	for seed := range testenv.Repeat(t, 3, 500) {
		synctest.Test(t, func(t *testing.T) { run(newGroup(t, memory()), uint64(seed), 250) })
	}
}

// TestDynamicSickJoiner reaches nobody, and fails for itself.
func TestDynamicSickJoiner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memory())
		g.join("a")
		g.join("b")
		sick := g.newHost("c")
		g.net.cuts[[2]uint64{sick.Self().Incarnation, 0}] = true
		err := sick.Join(t.Context())
		var unsynced *ConnectionError
		if !errors.As(err, &unsynced) || unsynced.Name != "a" {
			t.Errorf("join: %v", err)
		}
		if sick.Err() != nil {
			t.Errorf("its state: %v", sick.Err())
		}
		synctest.Wait()
		g.exact("the join of a sick one")
		g.join("c")
		g.exact("the next join")
	})
}

// TestDynamicSuspectsOfTheSick: one that reaches nobody suspects all, and all suspect it. They live, so nobody is evicted.
func TestDynamicSuspectsOfTheSick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memory())
		for _, name := range []string{"a", "b", "c", "d"} {
			g.join(name)
		}
		sick := g.live[1].Self().Incarnation
		g.net.change(func() { g.net.cuts[[2]uint64{sick, 0}] = true })
		for _, h := range g.live {
			for _, o := range g.live {
				h.Suspect(o.Self().Incarnation)
			}
		}
		after(t.Context(), time.Minute)
		g.exact("suspicions of all against all")
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

// TestDynamicPaused: one that stands still is evicted after the patience, and learns it when it goes on.
func TestDynamicPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memory())
		g.join("a")
		stopped := g.join("b")
		g.join("c")
		began := time.Now()
		g.net.change(func() { stopped.paused = true })
		stopped.store.set(func(int) fate { return hung })
		g.drop(stopped)
		g.noticed(stopped.Self().Incarnation)
		g.converge("the eviction")
		if took := time.Since(began); took < g.opts.ReplyTimeout || took > g.opts.SyncTimeout+2*g.opts.ReplyTimeout {
			t.Errorf("evicted after %v", took)
		}
		for i := range 2 * keptEntries { // It is so far behind that the log of its eviction is gone.
			g.leave(g.join(fmt.Sprintf("x%d", i)))
		}
		g.net.change(func() { stopped.paused = false })
		stopped.store.set(nil)
		<-stopped.Done()
		if !errors.Is(stopped.Err(), ErrEvicted) || !errors.Is(stopped.WaitVersion(t.Context(), 1), ErrEvicted) {
			t.Errorf("it ended with %v", stopped.Err())
		}
		healthy := g.live[0]
		if _, err := stopped.evict(t.Context(), stopped.tracker.current(), healthy.Self()); !errors.Is(err, ErrEvicted) {
			t.Errorf("it evicts others: %v", err)
		}
		synctest.Wait()
		g.exact("its end")
	})
}

// TestDynamicBadWayToTheStore: a member that can be reached, but sees changes late or not at all, is waited for a little, and stays.
func TestDynamicBadWayToTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memory())
		g.join("a")
		slow := g.join("b")
		synctest.Wait() // It waits for the next change.
		slow.store.set(func(int) fate { return hung })
		g.join("c") // What it waits for already it is told even so.
		g.exact("a join")
		time.AfterFunc(3*g.opts.SyncTimeout/2, func() { slow.store.set(nil) })
		g.join("d")
		g.exact("a join that was seen late")
		synctest.Wait() // It waits for the next change.
		slow.store.set(func(int) fate { return hung })
		g.join("e")
		g.join("f")
		if sees := len(slow.View().Members); sees != 5 {
			t.Errorf("it sees %d members", sees)
		}
		slow.store.set(nil)
		g.converge("joins that were not seen")
	})
}

// TestDynamicFarBehind: a member that stood still unnoticed for more changes than are kept comes back.
func TestDynamicFarBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memory())
		g.join("a")
		behind := g.join("b")
		behind.store.set(func(int) fate { return hung })
		g.opts.SyncTimeout = time.Millisecond
		for i := range keptEntries {
			g.leave(g.join(fmt.Sprintf("x%d", i)))
		}
		if there, _ := g.dial().Check(t.Context(), "rpc/test/"+entryKey(behind.View().Version+1)); there {
			t.Error("the entry that it waits for is still there")
		}
		behind.store.set(nil)
		g.join("c")
		g.exact("a pause")
	})
}

func TestDynamicNameTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memory())
		first := g.join("a")
		var taken *NameTakenError
		if err := g.newHost("a").Join(t.Context()); !errors.As(err, &taken) {
			t.Errorf("second of a name: %v", err)
		}
		g.exact("a refusal")
		g.net.change(func() { first.dead = true })
		first.Close()
		g.drop(first)
		if id := g.join("a").Self().ID; id != 1 {
			t.Errorf("id %d", id)
		}
		g.exact("a join in place of a dead one")
	})
}

func TestDynamicOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memory())
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

// TestDynamicCloseEndsJoin: a join that waits for the lock ends with Close.
func TestDynamicCloseEndsJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memory())
		g.join("a")
		h := g.newHost("b")
		lockOf(kvstore.NewPrefixStore("rpc/test", g.dial()), 99).with(t.Context(), func(ctx context.Context) error {
			result := make(chan error)
			go func() { result <- h.Join(ctx) }()
			synctest.Wait()
			h.Close()
			if err := <-result; !errors.Is(err, ErrShutdown) || !strings.Contains(err.Error(), `"b"`) {
				t.Errorf("join: %v", err)
			}
			return nil
		})
		g.exact("a join that was closed")
	})
}

// TestDynamicKeys: thousands of changes leave a bounded number of keys in the store.
func TestDynamicKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memory())
		g.join("a")
		g.join("b")
		n := testenv.Repeat(t, 200, 850) // kept twice and more
		for i := range 2 * n {
			h := g.join(fmt.Sprintf("x%d", i))
			if i%7 == 0 {
				g.kill(h)
				g.converge("a kill")
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
