package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/coordtest"
)

// sessionTTL is above the shortest TTL that etcd grants, 2 s, so that a busy machine keeps sessions alive.
const sessionTTL = 5 * time.Second

// linked is a store behind its own proxy.
type linked struct {
	*Store

	link *proxy
}

// openLinked opens a store behind a proxy, which ends with the test.
func openLinked(t testing.TB, target string, options Options) *linked {
	t.Helper()
	p := newProxy(t, target[len("http://"):])
	options.Endpoints = []string{p.url()}
	s := open(t, options)
	return &linked{Store: s, link: p}
}

func open(t testing.TB, options Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		s.Close(ctx)
	})
	return s
}

func conform(t *testing.T, endpoint, prefix string) {
	t.Helper()
	link := func(s coord.Store) *proxy { return s.(*linked).link }
	cut := func(s coord.Store) { link(s).set(func() { link(s).cut = true }) }
	coordtest.Run(t, coordtest.Harness{
		Open: func(t testing.TB) coord.Store {
			t.Helper()
			return openLinked(t, endpoint, Options{Prefix: prefix, TTL: sessionTTL, OpTimeout: 5 * time.Second})
		},
		TTL:    sessionTTL,
		KeyTTL: sessionTTL,
		Cut:    cut,
		Heal:   func(s coord.Store) { link(s).set(func() { link(s).cut = false }) },
		Break:  func(s coord.Store) { link(s).reset() },
		Kill:   cut,
	})
}

func TestStore(t *testing.T) {
	t.Parallel()
	conform(t, shared.endpoint(t), "conformance/")
}

// TestStoreDebian runs the suite against Debian's etcd, which is the oldest supported version.
func TestStoreDebian(t *testing.T) {
	t.Parallel()
	c := startDebian(t, 1, "--unsafe-no-fsync")[0]
	waitReady(t, c)
	conform(t, c.client, "")
}

// TestEndSession ends the session of another client, which stands for a dead process.
func TestEndSession(t *testing.T) {
	t.Parallel()
	options := Options{Endpoints: []string{startEtcd(t).client}, TTL: time.Minute, DialTimeout: 5 * time.Second}
	dead, other := open(t, options), open(t, options)
	mustCommit(t, dead, owned("own", "v"))
	watchEnded := make(chan error, 1)
	errDeleted := errors.New("the key was deleted")
	go func() {
		watchEnded <- other.Watch(t.Context(), "own", func(b coord.Batch) error {
			if len(b.Events) == 0 || b.Events[0].Deleted {
				return errDeleted
			}
			return nil
		})
	}()
	if err := EndSession(t.Context(), options, dead.Session()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-watchEnded:
		if !errors.Is(err, errDeleted) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the keys of the ended session are still there")
	}
	if err := EndSession(t.Context(), options, dead.Session()); err != nil {
		t.Errorf("a session that has ended: %v", err)
	}
	if err := EndSession(t.Context(), options, "no number"); err == nil {
		t.Error("EndSession accepted an invalid session id")
	}
	options.Endpoints, options.DialTimeout = []string{"http://127.0.0.1:1"}, time.Second
	if err := EndSession(t.Context(), options, dead.Session()); !errors.Is(err, coord.ErrUnavailable) {
		t.Errorf("no server: %v", err)
	}
}
