package coord

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// fill puts keys of the given size until the store returns an error. It returns the number of keys and the error.
func fill(t *testing.T, s Store, prefix string, op Op, size int) (n int, err error) {
	t.Helper()
	for ; n < 100_000; n++ {
		op.Key, op.Value = fmt.Sprintf("%s%d", prefix, n), make([]byte, size)
		if _, err := s.Commit(t.Context(), nil, []Op{op}); err != nil {
			return n, err
		}
	}
	t.Fatal("the store is not bounded")
	return n, nil
}

// TestFullStore fills a store. New data must fail with ErrFull, but running jobs, above all their leader, and deletes
// must still work.
func TestFullStore(t *testing.T) {
	const memory = 16 << 20
	s, addr := startServer(t, ServerOptions{MaxMemory: memory})
	leader := openLocal(t, s)
	agent := dial(t, DialOptions{Addr: addr})
	put(t, agent, Op{Key: "agent", Value: make([]byte, 1000), Owned: true})

	greedy := dial(t, DialOptions{Addr: addr})
	lasting, err := fill(t, greedy, "lasting/", Op{}, 100_000)
	if !errors.Is(err, ErrFull) || lasting < 15 || lasting > memory/2/4/100_000 ||
		!strings.Contains(err.Error(), "keys without a session use ") {
		t.Errorf("%d keys that outlive their session: %v", lasting, err)
	}
	owned, err := fill(t, greedy, "owned/", Op{Owned: true}, 100_000)
	if !errors.Is(err, ErrFull) || owned < 45 || owned > 60 {
		t.Errorf("%d keys of a session: %v", owned, err)
	}
	if got := s.Stats().Memory; got > memory/2 {
		t.Errorf("the store has %d bytes, and may have %d", got, memory/2)
	}
	put(t, agent, Op{Key: "agent", Value: make([]byte, 2000), Owned: true})
	put(t, leader, Op{Key: "decision", Value: make([]byte, 100_000)})

	fillSessions(t, addr)
	closeStore(t, greedy)
	newcomer := dial(t, DialOptions{Addr: addr})
	put(t, newcomer, Op{Key: "newcomer", Value: make([]byte, 100_000), Owned: true})
}

// fillSessions opens sessions until the store refuses one, and closes them.
func fillSessions(t *testing.T, addr string) {
	t.Helper()
	var open []*Client
	defer func() {
		for _, c := range open {
			closeStore(t, c)
		}
	}()
	for range 2000 {
		c, err := Dial(t.Context(), DialOptions{Addr: addr})
		if err == nil {
			open = append(open, c)
			continue
		}
		if busy, ok := errors.AsType[*DialError](err); !ok || busy.Obstacle != ObstacleBusy ||
			!strings.Contains(busy.Message, "the store is full: ") {
			t.Errorf("a session too many: %v", err)
		}
		return
	}
	t.Error("sessions are not bounded")
}

// TestBudgetIsExact compares the budget with the contents of the core after random operations.
func TestBudgetIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCore()
		c.budget.limitMemory(rapid.SampledFrom([]int64{1 << 20, 64 << 20}).Draw(t, "memory"))
		sessions := []*session{
			c.openSession("a", "", time.Minute, 0), c.openSession("b", "", time.Minute, 0),
			c.openSession("c", "", 0, 0),
		}
		var watchers []*watcher
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			s := rapid.SampledFrom(sessions).Draw(t, "session")
			key := rapid.SampledFrom([]string{"k", "kk", "l"}).Draw(t, "key")
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				c.endSession(s)
			case 1:
				watchers = append(watchers, c.watch(key, func() {}))
			case 2:
				if len(watchers) > 0 {
					c.unwatch(watchers[0])
					watchers = watchers[1:]
				}
			case 3:
				for _, w := range watchers {
					c.take(w)
				}
			default:
				op := Op{Key: key, Value: make([]byte, rapid.IntRange(0, 100_000).Draw(t, "size"))}
				op.Delete, op.Owned = rapid.Bool().Draw(t, "delete"), rapid.Bool().Draw(t, "owned")
				if _, err := c.commit(s, nil, []Op{op}, 0); err != nil && !errors.Is(err, ErrFull) &&
					!errors.Is(err, ErrSessionLost) {
					t.Fatal(err)
				}
			}
			stored, lasting, changes := int64(0), int64(0), 0
			for _, e := range c.entries {
				stored += e.size()
				if e.lasts() {
					lasting += e.size()
				}
			}
			for _, s := range c.sessions {
				stored += sessionCost(s)
			}
			for _, w := range watchers {
				stored += int64(watchSize + len(w.prefix))
				changes += len(w.changed)
			}
			if b := c.budget; b.stored != stored || b.lasting != lasting || b.changes != changes {
				t.Fatalf("counted %+v, there are %d, %d, %d", b, stored, lasting, changes)
			}
		}
	})
}

// TestWatchBacklogIsBounded checks that watches without a reader have a bounded backlog and still deliver everything.
func TestWatchBacklogIsBounded(t *testing.T) {
	c := newCore()
	c.budget.limitMemory(2 << 20)
	s := c.openSession("s", "", time.Minute, 0)
	var watchers []*watcher
	for range 100 {
		w := c.watch("", func() {})
		c.take(w)
		watchers = append(watchers, w)
	}
	const keys = 1000
	for i := range keys {
		if _, err := c.commit(s, nil, []Op{{Key: fmt.Sprint(i), Owned: true}}, 0); err != nil {
			t.Fatal(err)
		}
		if c.budget.changes > c.budget.maxChanges {
			t.Fatalf("%d undelivered keys, want at most %d", c.budget.changes, c.budget.maxChanges)
		}
	}
	for _, w := range watchers {
		if b, _, ok := c.take(w); !ok || len(b.Events) != keys {
			t.Fatalf("%v, %d events, resync %v", ok, len(b.Events), b.Resync)
		}
	}
	if c.budget.changes != 0 {
		t.Errorf("%d undelivered keys after all batches are taken", c.budget.changes)
	}
}

// TestInflightIsBounded checks that clients with large incomplete requests are dropped and do not disturb others.
func TestInflightIsBounded(t *testing.T) {
	const memory = 16 << 20
	s, addr := startServer(t, ServerOptions{MaxMemory: memory, StallTimeout: time.Minute})
	good := dial(t, DialOptions{Addr: addr})
	half := appendCommit(nil, commitRequest{request: 1, ops: []Op{{Key: "k", Value: make([]byte, 1<<20-100)}}})
	half = half[:len(half)-1]
	for range 20 {
		c, err := Dial(t.Context(), DialOptions{Addr: addr})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.lose(errClosed); c.cancel(); c.running.Wait() })
		c.mu.Lock()
		_ = c.conn.send(half)
		c.mu.Unlock()
		put(t, good, Op{Key: "good", Value: make([]byte, 100), Owned: true})
	}
	deadline := time.After(testTimeout)
	for s.Stats().Dropped == 0 {
		select {
		case <-deadline:
			t.Fatalf("no connection was dropped: %+v", s.Stats())
		case <-time.After(10 * time.Millisecond):
		}
	}
	if got := s.Stats().Memory; got > memory {
		t.Errorf("%d bytes are counted, want %d at most", got, memory)
	}
	put(t, good, Op{Key: "good", Value: make([]byte, 100_000), Owned: true})
}

// TestIncompleteRequest checks that a connection whose request does not arrive completely is closed.
func TestIncompleteRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(ServerOptions{StallTimeout: 10 * time.Second})
		defer s.Close()
		c, err := Dial(t.Context(), DialOptions{Addr: "pipe", TTL: time.Hour, Conn: pipeTo(s)})
		if err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		half := commitRequest{request: 1, ops: []Op{{Key: "k", Value: bytes.Repeat([]byte("v"), 100_000)}}}
		_ = c.conn.send(appendCommit(nil, half)[:80_000])
		first := c.conn
		c.mu.Unlock()
		began := time.Now()
		<-first.detached
		if took := time.Since(began); took < 10*time.Second || took > 21*time.Second {
			t.Errorf("closed after %v", took)
		}
		put(t, c, Op{Key: "k", Value: make([]byte, 1<<20-10), Owned: true}) // on the next connection
		closeStore(t, c)
	})
}

// TestResumeInAFullStore checks that an agent can resume its session and watches in a full store. A client with too
// many watches is told why it gets no more.
func TestResumeInAFullStore(t *testing.T) {
	_, addr := startServer(t, ServerOptions{MaxMemory: 4 << 20})
	if s := NewServer(ServerOptions{}); s.core.budget.limit != 512<<20 {
		t.Errorf("a store without MaxMemory may have %d bytes", s.core.budget.limit)
	}
	network := newFaultyTCP(addr)
	agent := dial(t, DialOptions{Addr: addr, Conn: network.dial, TTL: time.Minute})
	seen := watch(t, agent, "agent")
	next(t, seen, "the first batch")
	greedy := dial(t, DialOptions{Addr: addr, TTL: time.Minute})
	if _, err := fill(t, greedy, "k", Op{Owned: true}, 10_000); !errors.Is(err, ErrFull) {
		t.Errorf("keys: %v", err)
	}
	if _, err := fill(t, greedy, "l", Op{Owned: true}, 10); !errors.Is(err, ErrFull) {
		t.Errorf("small keys: %v", err)
	}
	network.reset()
	if b := next(t, seen, "the batch of the resumed watch"); !b.Resync {
		t.Errorf("got %+v", b)
	}
	for range prepaidWatches {
		next(t, watch(t, greedy, "k1"), "a batch")
	}
	if err := greedy.Watch(t.Context(), "k1", func(Batch) error { return nil }); !errors.Is(err, ErrUnavailable) ||
		!strings.Contains(err.Error(), "the store is full") {
		t.Errorf("a watch too many: %v", err)
	}
}

// TestIdleConnectionIsNotCounted checks that an idle connection does not count as memory in flight.
func TestIdleConnectionIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(ServerOptions{})
		defer s.Close()
		way := &pipeNetwork{server: s}
		c := dial(t, DialOptions{Addr: "pipe", Conn: way.dial, TTL: time.Hour})
		seen := watch(t, c, "")
		next(t, seen, "the first batch")
		put(t, c, Op{Key: "k", Value: make([]byte, 1<<20-10), Owned: true})
		next(t, seen, "a batch")
		synctest.Wait()
		s.mu.Lock()
		left := s.inflight
		s.mu.Unlock()
		if left > 1000 {
			t.Errorf("%d bytes are counted after the requests", left)
		}
		closeStore(t, c)
		synctest.Wait()
		if got := s.Stats().Memory; got != 0 {
			t.Errorf("%d bytes are counted without connections", got)
		}
	})
}

// TestWatchesOfASession checks that a session has a bounded number of watches and learns why it gets no more.
func TestWatchesOfASession(t *testing.T) {
	s, addr := startServer(t, ServerOptions{})
	nc, in := dialRaw(t, addr)
	for n := range int64(maxWatches) {
		nc.Write(appendNumbered(nil, kindWatch, n, "k"))
		nc.Write(appendNumbered(nil, kindWatch, n, "l")) // this watch replaces the one before
	}
	nc.Write(appendNumbered(nil, kindKeepAlive, 1))
	for {
		k, _, err := readFrame(in, maxFrame, make([]byte, frameHeader))
		if err != nil {
			t.Fatal(err)
		}
		if k == kindReply {
			break
		}
	}
	nc.Write(appendNumbered(nil, kindWatch, maxWatches, "k"))
	for {
		k, body, err := readFrame(in, maxFrame, make([]byte, frameHeader))
		if err != nil {
			t.Fatal(err)
		}
		if k == kindExitNotice {
			if !bytes.Contains(body, []byte("128 watches already")) {
				t.Errorf("exit notice %q", body)
			}
			break
		}
	}
	if got := s.Stats().Sessions; got != 1 {
		t.Errorf("%d sessions", got)
	}
}
