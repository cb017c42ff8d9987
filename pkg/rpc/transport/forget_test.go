package transport

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// pooled returns the connection to a peer, and the number of connections of the pool.
func pooled(p *Pool, addr string) (c *conn, count int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peers[addr], len(p.conns)
}

// waiting starts a server. Its handler of the request "wait" sends to running and then waits for release.
func waiting(t *testing.T, opts ServerOptions) (addr string, running, release chan struct{}) {
	t.Helper()
	running, release = make(chan struct{}, 1), make(chan struct{})
	opts.Handle = func(ctx context.Context, request []byte) [][]byte {
		if string(request) == "wait" {
			running <- struct{}{}
			<-release
		}
		return [][]byte{request}
	}
	_, addr = serve(t, opts)
	return addr, running, release
}

func TestForgetIdle(t *testing.T) {
	_, addr := serve(t, ServerOptions{Handle: echo})
	_, other := serve(t, ServerOptions{Handle: echo})
	p := newPool(t, ClientOptions{})
	p.Forget(addr) // no connection yet
	checkEcho(t, p, addr)
	checkEcho(t, p, other)
	c, _ := pooled(p, addr)
	p.Forget(addr)
	if state := c.grpc.GetState(); state != connectivity.Shutdown {
		t.Errorf("the connection is not closed, but %v", state)
	}
	if now, count := pooled(p, addr); now != nil || count != 1 {
		t.Errorf("%d connections are left, and %v for this peer; want only the connection to the other peer", count, now)
	}
	p.Keep(map[string]bool{other: true})
	checkEcho(t, p, addr)
	if now, count := pooled(p, addr); now == nil || now == c || count != 2 {
		t.Errorf("a later call has made no connection of its own: %d are there", count)
	}
	p.Keep(map[string]bool{other: true})
	if now, count := pooled(p, addr); now != nil || count != 1 {
		t.Errorf("Keep has left %d connections", count)
	}
}

// TestForgetInUse forgets a peer during a call and a watch: both continue, and the connection closes when the later one
// has ended.
func TestForgetInUse(t *testing.T) {
	w := newWatchRecorder()
	addr, running, release := waiting(t, ServerOptions{Watched: w.watched})
	p := newPool(t, ClientOptions{})
	watched := watch(t, p, addr, w)
	ended := callAside(t, p, addr)
	<-running
	old, _ := pooled(p, addr)
	p.Forget(addr)
	p.Forget(addr)
	checkEcho(t, p, addr)
	fresh, count := pooled(p, addr)
	if fresh == nil || fresh == old || count != 2 {
		t.Fatalf("a call after it has made no connection of its own: %d are there", count)
	}
	close(release)
	if err := <-ended; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	if state := old.grpc.GetState(); state == connectivity.Shutdown {
		t.Error("the connection is closed while the watch lasts")
	}
	watched.stop(errEnough)
	if err := <-watched.ended; !errors.Is(err, errEnough) {
		t.Errorf("the watch's end: %v", err)
	}
	if err := <-w.ended; err != nil {
		t.Errorf("the watch's end, at the server: %v", err)
	}
	if state := old.grpc.GetState(); state != connectivity.Shutdown {
		t.Errorf("the connection is not closed, but %v", state)
	}
	if now, count := pooled(p, addr); now != fresh || count != 1 {
		t.Errorf("%d connections are left, want the new one", count)
	}
}

// TestCloseForgotten closes a pool that has forgotten a peer during a call.
func TestCloseForgotten(t *testing.T) {
	addr, running, release := waiting(t, ServerOptions{})
	defer close(release)
	p := newPool(t, ClientOptions{})
	ended := callAside(t, p, addr)
	<-running
	p.Forget(addr)
	p.Close()
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("the call under way: %v", err)
	}
}

// A connection that fails while nobody uses it is closed when the next call replaces it. Otherwise gRPC would try to
// connect until the pool is closed.
func TestFailedIdleIsClosed(t *testing.T) {
	ln := listen(t)
	addr := ln.Addr().String()
	ln.Close()
	p := newPool(t, ClientOptions{})
	c, err := p.acquire(addr)
	if err != nil {
		t.Fatal(err)
	}
	c.serves.Store(true) // as after a call that was answered
	p.release(c)
	c.grpc.Connect() // as by a watch that is canceled while gRPC connects
	testenv.Await(t, "the connection to fail", time.Minute, c.failed)
	if _, err := p.Call(t.Context(), addr, []byte("x")); !errors.Is(err, ErrConnection) {
		t.Errorf("got %v, want a refused connection", err)
	}
	state := c.grpc.GetState()
	if now, count := pooled(p, addr); now != nil || count != 0 || state != connectivity.Shutdown {
		t.Errorf("%d connections are left, and the former one is %v", count, state)
	}
}
