package coordtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// Harness gives the suite stores of one implementation.
type Harness struct {
	// Open returns a new client, with a session of its own; all share one store. It ends the test where it
	// cannot. The suite closes what it has opened, and opens from several tests at a time.
	Open func(t testing.TB) coord.Store
	// TTL of the sessions. 0: they live as long as the store, and cases about their end by silence are left out.
	TTL time.Duration
	// Patience bounds each wait for what must happen; 0 is 20 s.
	Timeout time.Duration
	// What can befall a client. Cases that need one that is nil are left out.
	Cut   func(coord.Store) // the network swallows whatever it and the store send; no connection ends
	Heal  func(coord.Store) // ends Cut
	Break func(coord.Store) // its connections are reset; it can connect again at once, and keeps its session
	Kill  func(coord.Store) // its process is dead: nothing more is heard of it; Close then only gives back memory
}

// Run tests the stores of a harness.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.Timeout == 0 {
		h.Timeout = 20 * time.Second
	}
	for _, c := range cases() {
		if c.needs != nil && !c.needs(h) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(&testEnv{TB: t, Harness: h, prefix: "coordtest-" + rand.Text() + "/"})
		})
	}
}

type testCase struct {
	name  string
	needs func(Harness) bool // nil: nothing
	run   func(*testEnv)
}

func cases() []testCase {
	expires := func(h Harness) bool { return h.TTL > 0 }
	cuts := func(h Harness) bool { return h.TTL > 0 && h.Cut != nil && h.Heal != nil }
	return []testCase{
		{name: "Guards", run: guards},
		{name: "GuardOfSession", run: guardOfSession},
		{name: "AllOrNothing", run: allOrNothing},
		{name: "Revisions", run: revisions},
		{name: "OneWinner", run: oneWinner},
		{name: "Deletes", run: deletes},
		{name: "Bytes", run: anyBytes},
		{name: "Limits", run: limits},

		{name: "SessionIDs", run: sessionIDs},
		{name: "Close", run: closeEndsSession},
		{name: "Owners", run: owners},
		{name: "KeepAlive", needs: expires, run: keepAlive},
		{name: "Expiry", needs: expires, run: expiry},
		{name: "ExpiryAsked", needs: expires, run: expiryAsked},
		{name: "KeyTTL", run: keyTTL},
		{name: "KeyTTLRenewed", run: keyTTLRenewed},
		{name: "KeyTTLTaken", run: keyTTLTaken},

		{name: "Watch", run: watchBatches},
		{name: "WatchPrefix", run: watchPrefix},
		{name: "WatchWhole", run: watchWhole},
		{name: "WatchOrder", run: watchOrder},
		{name: "WatchSlow", run: watchSlow},
		{name: "WatchEnds", run: watchEnds},
		{name: "Watches", run: watches},
		{name: "Linearizable", run: linearizable},

		{name: "Kill", needs: func(h Harness) bool { return h.TTL > 0 && h.Kill != nil }, run: kill},
		{name: "CutShort", needs: cuts, run: cutShort},
		{name: "CutLong", needs: cuts, run: cutLong},
		{name: "CutClose", needs: cuts, run: cutClose},
		{name: "Break", needs: func(h Harness) bool { return h.Break != nil }, run: breakOften},
	}
}

// lab is what one case works with. Keys are without its prefix in all that its methods take and return.
type testEnv struct {
	testing.TB
	Harness

	prefix string
}

// bounded returns a context that ends a call that hangs.
func (l *testEnv) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(l.Context()), l.Timeout)
}

// open returns a store that is kept alive until the case ends.
func (l *testEnv) open() coord.Store {
	l.Helper()
	s := l.openIdle()
	if l.TTL == 0 {
		return s
	}
	ctx, cancel := context.WithCancel(l.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		keepAliveUntil(ctx, s)
	}()
	l.Cleanup(func() {
		cancel()
		<-ended
	})
	return s
}

// keep keeps a session alive until it is lost.
func keepAliveUntil(ctx context.Context, s coord.Store) {
	ticks := time.NewTicker(s.TTL() / 5)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.Lost():
			return
		case <-ticks.C:
			once, cancel := context.WithTimeout(ctx, s.TTL())
			err := s.KeepAlive(once) // a network that is cut is the case's business
			cancel()
			if errors.Is(err, coord.ErrSessionLost) {
				return
			}
		}
	}
}

// openIdle returns a store that nobody keeps alive.
func (l *testEnv) openIdle() coord.Store {
	l.Helper()
	s := l.Open(l.TB)
	l.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.Context()), time.Second)
		defer cancel()
		_ = s.Close(ctx) // the case may have closed or killed it
	})
	return s
}

// close closes a store that can hear it.
func (l *testEnv) close(s coord.Store) {
	l.Helper()
	ctx, cancel := l.bounded()
	defer cancel()
	if err := s.Close(ctx); err != nil {
		l.Fatalf("close: %v", err)
	}
}

func (l *testEnv) put(key, value string) coord.Op {
	return coord.Op{Key: l.prefix + key, Value: []byte(value)}
}

func (l *testEnv) putOwned(key, value string) coord.Op {
	return coord.Op{Key: l.prefix + key, Value: []byte(value), Owned: true}
}

func (l *testEnv) putTTL(key, value string, ttl time.Duration) coord.Op {
	return coord.Op{Key: l.prefix + key, Value: []byte(value), TTL: ttl}
}

func (l *testEnv) del(key string) coord.Op { return coord.Op{Key: l.prefix + key, Delete: true} }

// made guards that a key is still that of a revision, or, with 0, that there is none.
func (l *testEnv) guard(key string, create coord.Revision) coord.Guard {
	return coord.Guard{Key: l.prefix + key, Create: create}
}

// must commits.
func (l *testEnv) commit(s coord.Store, guards []coord.Guard, ops ...coord.Op) coord.Revision {
	l.Helper()
	ctx, cancel := l.bounded()
	defer cancel()
	rev, err := s.Commit(ctx, guards, ops)
	if err != nil {
		l.Fatalf("commit of %s: %v", l.opsString(ops), err)
	}
	return rev
}

// insist commits what may be done twice, as often as the store does not answer.
func (l *testEnv) retryCommit(s coord.Store, ops ...coord.Op) {
	l.Helper()
	ctx, cancel := l.bounded()
	defer cancel()
	for {
		once, cancelOnce := context.WithTimeout(ctx, 5*time.Second)
		_, err := s.Commit(once, nil, ops)
		cancelOnce()
		switch {
		case err == nil:
			return
		case ctx.Err() != nil || !errors.Is(err, coord.ErrUnavailable):
			l.Fatalf("commit of %s: %v", l.opsString(ops), err)
		}
	}
}

// refused commits what must fail with an error.
func (l *testEnv) commitFails(s coord.Store, want error, guards []coord.Guard, ops ...coord.Op) {
	l.Helper()
	ctx, cancel := l.bounded()
	defer cancel()
	if rev, err := s.Commit(ctx, guards, ops); !errors.Is(err, want) {
		l.Fatalf("commit of %s returned %d, %v; want %v", l.opsString(ops), rev, err, want)
	}
}

// lost checks that all that can be asked of a store says that its session is lost.
func (l *testEnv) allCallsLost(s coord.Store) {
	l.Helper()
	l.commitFails(s, coord.ErrSessionLost, nil, l.put("of a lost session", ""))
	ctx, cancel := l.bounded()
	defer cancel()
	if err := s.KeepAlive(ctx); !errors.Is(err, coord.ErrSessionLost) {
		l.Errorf("KeepAlive returned %v, want %v", err, coord.ErrSessionLost)
	}
	l.sessionLost(s)
	see := func(coord.Batch) error { return nil }
	if err := s.Watch(ctx, l.prefix, see); !errors.Is(err, coord.ErrSessionLost) {
		l.Errorf("Watch returned %v, want %v", err, coord.ErrSessionLost)
	}
}

// told checks that a store knows that its session is lost.
func (l *testEnv) sessionLost(s coord.Store) {
	l.Helper()
	select {
	case <-s.Lost():
		if err := s.Err(); !errors.Is(err, coord.ErrSessionLost) {
			l.Errorf("Err returned %v, want %v", err, coord.ErrSessionLost)
		}
	case <-time.After(l.Timeout):
		l.Errorf("Lost is not closed after %v", l.Timeout)
	}
}

// alive checks that a store takes its session for alive.
func (l *testEnv) alive(s coord.Store) {
	l.Helper()
	select {
	case <-s.Lost():
		l.Fatalf("the session is lost: %v", s.Err())
	default:
		if err := s.Err(); err != nil {
			l.Fatalf("Err returned %v before Lost was closed", err)
		}
	}
}

func (l *testEnv) opsString(ops []coord.Op) string {
	if len(ops) > 5 {
		return fmt.Sprintf("%d ops", len(ops))
	}
	var text []string
	for _, op := range ops {
		text = append(text, fmt.Sprintf("%.40q", op.Key[min(len(l.prefix), len(op.Key)):]))
	}
	return fmt.Sprint(text)
}
