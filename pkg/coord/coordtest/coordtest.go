package coordtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// Harness gives the suite access to the stores of one implementation.
type Harness struct {
	// Open returns a new client with a session of its own. All clients share one store. Open ends the test if it fails.
	// The suite closes the clients, and calls Open from several tests at the same time.
	Open func(t testing.TB) coord.Store
	// TTL is the TTL of the sessions. 0 means that sessions live as long as the store; the suite then leaves out the
	// cases about expiry.
	TTL time.Duration
	// KeyTTL is a short TTL of keys that the store can keep exactly. 0 means 2 s, which every store can keep.
	KeyTTL time.Duration
	// Timeout bounds each wait for something that must happen. 0 means a minute.
	Timeout time.Duration
	// The faults of a client. Cases that need a nil fault are left out.
	Cut   func(coord.Store) // the network drops what client and store send; no connection ends
	Heal  func(coord.Store) // ends Cut
	Break func(coord.Store) // the client's connections are reset; it can reconnect at once and keeps its session
	Kill  func(coord.Store) // the client's process is dead and sends nothing; Close then only releases memory
}

// Run runs the suite on the stores of a harness.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range cases() {
		if c.needs == nil || c.needs(h) {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.run(newTestEnv(t, h))
			})
		}
	}
}

// RunInBubble runs the suite in synctest bubbles, whose time passes at once. It is for stores that use no sockets. Each
// case has its own harness, which newHarness makes in the case's bubble.
func RunInBubble(t *testing.T, newHarness func(testing.TB) Harness) {
	t.Helper()
	sample := newHarness(t)
	for _, c := range cases() {
		if c.needs == nil || c.needs(sample) {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { c.run(newTestEnv(t, newHarness(t))) })
			})
		}
	}
}

type testCase struct {
	name  string
	needs func(Harness) bool // nil means nothing
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
		{name: "KeepAliveFollowsCommits", run: keepAliveFollowsCommits},
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

// testEnv is the environment of one case. The keys in arguments and results of its methods do not include its prefix.
type testEnv struct {
	testing.TB
	Harness

	prefix string
}

func newTestEnv(t testing.TB, h Harness) *testEnv {
	t.Helper()
	h.Timeout = cmp.Or(h.Timeout, time.Minute)
	h.KeyTTL = cmp.Or(h.KeyTTL, 2*time.Second)
	return &testEnv{TB: t, Harness: h, prefix: "coordtest-" + rand.Text() + "/"}
}

// bounded returns a context that ends a hanging call.
func (env *testEnv) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(env.Context()), env.Timeout)
}

// open returns a store that is kept alive until the case ends.
func (env *testEnv) open() coord.Store {
	env.Helper()
	s := env.openIdle()
	if env.TTL == 0 {
		return s
	}
	KeepAlive(env, s)
	return s
}

// KeepAlive keeps a session, which has a TTL, alive until the test ends.
func KeepAlive(t testing.TB, s coord.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		keepAliveUntil(ctx, s)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// keepAliveUntil keeps a session alive until ctx ends or the session is lost.
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
			err := s.KeepAlive(once) // the case may have cut the network
			cancel()
			if errors.Is(err, coord.ErrSessionLost) {
				return
			}
		}
	}
}

// openIdle returns a store that is not kept alive.
func (env *testEnv) openIdle() coord.Store {
	env.Helper()
	s := env.Open(env.TB)
	env.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(env.Context()), time.Second)
		defer cancel()
		_ = s.Close(ctx) // the case may have closed or killed it
	})
	return s
}

// close closes a store that is reachable.
func (env *testEnv) close(s coord.Store) {
	env.Helper()
	ctx, cancel := env.bounded()
	defer cancel()
	if err := s.Close(ctx); err != nil {
		env.Fatalf("close: %v", err)
	}
}

func (env *testEnv) put(key, value string) coord.Op {
	return coord.Op{Key: env.prefix + key, Value: []byte(value)}
}

func (env *testEnv) putOwned(key, value string) coord.Op {
	return coord.Op{Key: env.prefix + key, Value: []byte(value), Owned: true}
}

func (env *testEnv) putTTL(key, value string, ttl time.Duration) coord.Op {
	return coord.Op{Key: env.prefix + key, Value: []byte(value), TTL: ttl}
}

func (env *testEnv) del(key string) coord.Op { return coord.Op{Key: env.prefix + key, Delete: true} }

// guard requires that a key has a create-revision, or with 0 that it does not exist.
func (env *testEnv) guard(key string, create coord.Revision) coord.Guard {
	return coord.Guard{Key: env.prefix + key, Create: create}
}

// commit commits and fails the case on an error.
func (env *testEnv) commit(s coord.Store, guards []coord.Guard, ops ...coord.Op) coord.Revision {
	env.Helper()
	ctx, cancel := env.bounded()
	defer cancel()
	rev, err := s.Commit(ctx, guards, ops)
	if err != nil {
		env.Fatalf("commit of %s: %v", env.opsString(ops), err)
	}
	return rev
}

// retryCommit repeats an idempotent commit until the store answers.
func (env *testEnv) retryCommit(s coord.Store, ops ...coord.Op) {
	env.Helper()
	ctx, cancel := env.bounded()
	defer cancel()
	for {
		once, cancelOnce := context.WithTimeout(ctx, 5*time.Second)
		_, err := s.Commit(once, nil, ops)
		cancelOnce()
		switch {
		case err == nil:
			return
		case ctx.Err() != nil || !errors.Is(err, coord.ErrUnavailable):
			env.Fatalf("commit of %s: %v", env.opsString(ops), err)
		}
	}
}

// commitFails commits ops and fails the case unless the error is want.
func (env *testEnv) commitFails(s coord.Store, want error, guards []coord.Guard, ops ...coord.Op) {
	env.Helper()
	ctx, cancel := env.bounded()
	defer cancel()
	if rev, err := s.Commit(ctx, guards, ops); !errors.Is(err, want) {
		env.Fatalf("commit of %s returned %d, %v; want %v", env.opsString(ops), rev, err, want)
	}
}

// allCallsLost checks that every call reports the lost session.
func (env *testEnv) allCallsLost(s coord.Store) {
	env.Helper()
	env.commitFails(s, coord.ErrSessionLost, nil, env.put("of a lost session", ""))
	ctx, cancel := env.bounded()
	defer cancel()
	if err := s.KeepAlive(ctx); !errors.Is(err, coord.ErrSessionLost) {
		env.Errorf("KeepAlive returned %v, want %v", err, coord.ErrSessionLost)
	}
	env.sessionLost(s)
	handle := func(coord.Batch) error { return nil }
	if err := s.Watch(ctx, env.prefix, handle); !errors.Is(err, coord.ErrSessionLost) {
		env.Errorf("Watch returned %v, want %v", err, coord.ErrSessionLost)
	}
}

// sessionLost checks that a store reports the lost session.
func (env *testEnv) sessionLost(s coord.Store) {
	env.Helper()
	select {
	case <-s.Lost():
		if err := s.Err(); !errors.Is(err, coord.ErrSessionLost) {
			env.Errorf("Err returned %v, want %v", err, coord.ErrSessionLost)
		}
	case <-time.After(env.Timeout):
		env.Errorf("Lost is not closed after %v", env.Timeout)
	}
}

// alive checks that a store does not report a lost session.
func (env *testEnv) alive(s coord.Store) {
	env.Helper()
	select {
	case <-s.Lost():
		env.Fatalf("the session is lost: %v", s.Err())
	default:
		if err := s.Err(); err != nil {
			env.Fatalf("Err returned %v before Lost was closed", err)
		}
	}
}

func (env *testEnv) opsString(ops []coord.Op) string {
	if len(ops) > 5 {
		return fmt.Sprintf("%d ops", len(ops))
	}
	var text []string
	for _, op := range ops {
		text = append(text, fmt.Sprintf("%.40q", op.Key[min(len(env.prefix), len(op.Key)):]))
	}
	return fmt.Sprint(text)
}
