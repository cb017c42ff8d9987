package coord

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
)

// testTimeout bounds waits for events that happen at once.
const testTimeout = time.Minute

// startServer serves agents on a local port until the test ends.
func startServer(t testing.TB, opts ServerOptions) (*Server, string) {
	t.Helper()
	s := NewServer(opts)
	return s, serve(t, s)
}

// serve lets s serve connections until the test ends. It returns the address.
func serve(t testing.TB, s *Server) string {
	t.Helper()
	t.Cleanup(func() { _ = s.Close() })
	return testenv.Serve(t, s.ServeConn)
}

// dial returns a client that is closed when the test ends.
func dial(t testing.TB, opts DialOptions) *Client {
	t.Helper()
	c, err := Dial(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(t, c) })
	return c
}

// openLocal returns a store in the server's process.
func openLocal(t testing.TB, s *Server) Store {
	t.Helper()
	l, err := s.Local()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// connect returns a TCP connection that is closed when the test ends.
func connect(t testing.TB, addr string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return nc
}

// closeStore closes a store. It works after t.Context has ended.
func closeStore(t testing.TB, s Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testTimeout)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// put commits one op.
func put(t testing.TB, s Store, op Op) Revision {
	t.Helper()
	r, err := s.Commit(t.Context(), nil, []Op{op})
	if err != nil {
		t.Fatalf("put %q: %v", op.Key, err)
	}
	return r
}

// watch starts a watch, which ends with the test, and returns a channel of its batches.
func watch(t testing.TB, s Store, prefix string) <-chan Batch {
	t.Helper()
	batches := make(chan Batch)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Watch(ctx, prefix, func(b Batch) error {
			select {
			case batches <- b:
			case <-ctx.Done():
			}
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return batches
}

// next returns the next value of a channel.
func next[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	select {
	case b, ok := <-from:
		if !ok {
			var none T
			return none
		}
		return b
	case <-time.After(testTimeout):
		t.Fatalf("no %s arrived", what)
		panic("unreachable")
	}
}

func wantBatch(t testing.TB, from <-chan Batch, want Batch) {
	t.Helper()
	// cmp is slow for large values.
	same := cmp.Comparer(func(a, b []byte) bool { return bytes.Equal(a, b) })
	if diff := cmp.Diff(want, next(t, from, "a batch"), same); diff != "" {
		t.Errorf("batch (-want +got):\n%s", diff)
	}
}

func TestClientsSeeEachOther(t *testing.T) {
	s, addr := startServer(t, ServerOptions{Version: "v1", RunID: "run", Secret: []byte("secret"), InstanceID: "store"})
	opts := DialOptions{Addr: addr, Version: "v1", RunID: "run", Secret: []byte("secret"), TTL: 10 * time.Second}
	a, b := dial(t, opts), dial(t, opts)
	leader := openLocal(t, s)
	defer closeStore(t, leader)
	if a.InstanceID() != "store" || a.TTL() != 10*time.Second || a.Session() == b.Session() || s.Sessions() != 2 {
		t.Errorf("instance %q, TTL %v, sessions %q and %q of %d", a.InstanceID(), a.TTL(), a.Session(), b.Session(),
			s.Sessions())
	}
	home := netip.MustParseAddrPort(addr).Addr()
	if got := s.ReachedAt(); !slices.Equal(got, []netip.Addr{home}) {
		t.Errorf("reached at %v, want %v", got, home)
	}
	if got := a.LocalAddr(); got.Addr() != home || got.Port() == 0 {
		t.Errorf("the client's address is %v", got)
	}

	there, here := watch(t, b, "agent/"), watch(t, leader, "agent/")
	for _, w := range []<-chan Batch{there, here} {
		wantBatch(t, w, Batch{Resync: true})
	}
	put(t, a, Op{Key: "agent/a", Value: []byte("ready"), Owned: true})
	put(t, a, Op{Key: "elsewhere", Owned: true})
	if err := a.KeepAlive(t.Context()); err != nil {
		t.Error(err)
	}
	for _, w := range []<-chan Batch{there, here} {
		wantBatch(t, w, Batch{Revision: 1, Events: []Event{{Key: "agent/a", Value: []byte("ready"), Create: 1}}})
	}
	_, err := b.Commit(t.Context(), []Guard{{Key: "agent/a", Create: 2}}, []Op{{Key: "agent/b"}})
	want := `coordination store: a guard failed: key "agent/a" has create-revision 1, not 2`
	if !errors.Is(err, ErrConflict) || err.Error() != want {
		t.Errorf("commit under a wrong guard: %v", err)
	}
	closeStore(t, a)
	for _, w := range []<-chan Batch{there, here} {
		wantBatch(t, w, Batch{Revision: 3, Events: []Event{{Key: "agent/a", Deleted: true}}})
	}
	if err := a.KeepAlive(t.Context()); !errors.Is(err, ErrSessionLost) || !errors.Is(a.Err(), ErrSessionLost) {
		t.Errorf("keep-alive after the end: %v; %v", err, a.Err())
	}
}

// TestLargeBatch checks that a batch of several frames arrives as one batch.
func TestLargeBatch(t *testing.T) {
	s, addr := startServer(t, ServerOptions{})
	leader := openLocal(t, s)
	var want []Event
	for i := range 100 {
		e := Event{Key: fmt.Sprintf("k/%03d", i), Value: make([]byte, 10_000), Create: Revision(i + 1)}
		want = append(want, e)
		put(t, leader, Op{Key: e.Key, Value: e.Value})
	}
	big := make([]byte, MaxCommit-1)
	put(t, leader, Op{Key: "l", Value: big})
	c := dial(t, DialOptions{Addr: addr})
	wantBatch(t, watch(t, c, "k/"), Batch{Resync: true, Revision: 101, Events: want})
	wantBatch(t, watch(t, c, "l"), Batch{
		Resync: true, Revision: 101,
		Events: []Event{{Key: "l", Value: big, Create: 101}},
	})
	if r := put(t, c, Op{Key: "m", Value: big}); r != 102 {
		t.Errorf("revision %d", r)
	}
	if _, err := c.Commit(t.Context(), nil, []Op{{Key: "m", Value: make([]byte, MaxCommit)}}); !errors.Is(err,
		ErrTooLarge) {
		t.Errorf("commit that is too large: %v", err)
	}
}

// TestClose checks what clients and local stores report after the end of a server.
func TestClose(t *testing.T) {
	s, addr := startServer(t, ServerOptions{})
	leader := openLocal(t, s)
	c := dial(t, DialOptions{Addr: addr})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("shutdown while there is a client: %v", err)
	}
	var dialErr *DialError
	if _, err := Dial(t.Context(), DialOptions{Addr: addr}); !errors.As(err, &dialErr) ||
		dialErr.Obstacle != ObstacleBusy {
		t.Errorf("dial while it shuts down: %v", err)
	}
	put(t, c, Op{Key: "k"})
	watched := make(chan error, 2)
	for _, store := range []Store{c, leader} {
		go func() { watched <- store.Watch(t.Context(), "", func(Batch) error { return nil }) }()
	}
	_ = s.Close()
	for _, store := range []Store{c, leader} {
		next(t, store.Lost(), "the loss")
		_, err := store.Commit(t.Context(), nil, []Op{{Key: "l"}})
		for _, err := range []error{
			store.Err(), err, store.KeepAlive(t.Context()),
			next(t, watched, "the end of the watch"),
		} {
			if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrSessionLost) {
				t.Errorf("%T after the store's end: %v", store, err)
			}
		}
	}
	if _, err := s.Local(); !errors.Is(err, ErrServerClosed) {
		t.Errorf("Local after the end: %v", err)
	}
	here, there := net.Pipe()
	s.ServeConn(here)
	if _, err := there.Read(make([]byte, 1)); err == nil {
		t.Error("a closed server serves")
	}
}

// TestShutdown checks that Shutdown returns after the last client has closed.
func TestShutdown(t *testing.T) {
	s, addr := startServer(t, ServerOptions{})
	a, b := dial(t, DialOptions{Addr: addr}), dial(t, DialOptions{Addr: addr})
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(t.Context()) }()
	closeStore(t, a)
	select {
	case err := <-done:
		t.Errorf("shutdown has ended with a client left: %v", err)
	default:
	}
	closeStore(t, b)
	if err := next(t, done, "the end of Shutdown"); err != nil {
		t.Error(err)
	}
}

// TestSharedPort reaches the store through the port of a TCPStore server, which hands agents over.
func TestSharedPort(t *testing.T) {
	s := NewServer(ServerOptions{})
	front := tcpstore.NewServer(tcpstore.ServerOptions{Agents: s.ServeConn})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = front.Serve(l) }()
	t.Cleanup(func() {
		front.Close()
		<-done
		_ = s.Close()
	})
	dial(t, DialOptions{Addr: l.Addr().String()})
	if got := s.ReachedAt(); len(got) != 0 {
		t.Errorf("a client without a run id counts as reached at %v", got)
	}
	c := dial(t, DialOptions{Addr: l.Addr().String(), RunID: "run"})
	put(t, c, Op{Key: "k", Value: make([]byte, 100_000)})
	if b := next(t, watch(t, c, ""), "a batch"); len(b.Events) != 1 {
		t.Errorf("batch %+v", b)
	}
	if got := s.ReachedAt(); len(got) != 1 || !got[0].IsLoopback() {
		t.Errorf("reached at %v", got)
	}
}

func TestHasSession(t *testing.T) {
	s, addr := startServer(t, ServerOptions{})
	if s.HasSession("a") {
		t.Error("HasSession without a client")
	}
	c := dial(t, DialOptions{Addr: addr, RunID: "a"})
	if !s.HasSession("a") || s.HasSession("b") {
		t.Error("HasSession does not distinguish runs")
	}
	closeStore(t, c)
	if s.HasSession("a") {
		t.Error("HasSession after the session was closed")
	}
}
