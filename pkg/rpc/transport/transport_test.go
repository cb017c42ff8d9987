package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// listen returns a listener on loopback that closes at the end of the test.
func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// serve returns a server that closes at the end of the test, and its address.
func serve(t testing.TB, opts ServerOptions) (*Server, string) {
	t.Helper()
	ln := listen(t)
	s := Serve(ln, opts)
	t.Cleanup(func() { s.Close() })
	return s, ln.Addr().String()
}

func newPool(t testing.TB, opts ClientOptions) *Pool {
	t.Helper()
	p := NewPool(opts)
	t.Cleanup(func() { p.Close() })
	return p
}

// testTimeout bounds what must happen, however busy the machine is.
const testTimeout = time.Minute

// within returns a context that bounds a test.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// callAside makes the call "wait" in a goroutine and returns a channel that gets its error.
func callAside(t testing.TB, p *Pool, addr string) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := p.Call(t.Context(), addr, []byte("wait"))
		ended <- err
	}()
	return ended
}

func echo(_ context.Context, request []byte) [][]byte { return [][]byte{request} }

// checkEcho checks that a peer answers.
func checkEcho(t *testing.T, p *Pool, addr string) {
	t.Helper()
	got, err := p.Call(within(t, testTimeout), addr, []byte("are you "), nil, []byte("there?"))
	if err != nil || string(got) != "are you there?" {
		t.Errorf("call of %s: %q, %v", addr, got, err)
	}
}

func TestCallSizes(t *testing.T) {
	_, addr := serve(t, ServerOptions{Handle: func(_ context.Context, request []byte) [][]byte {
		half := len(request) / 2
		return [][]byte{request[half:], request[:half]}
	}})
	p := newPool(t, ClientOptions{})
	for _, size := range []int{0, 1, 64, 16<<10 - 5, 16 << 10, 1<<20 + 3, 20 << 20} {
		request := make([]byte, size)
		for i := range request {
			request[i] = byte(i * 7)
		}
		got, err := p.Call(within(t, testTimeout), addr, request[:size/3], request[size/3:])
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if want := slices.Concat(request[size/2:], request[:size/2]); !bytes.Equal(got, want) {
			t.Errorf("%d bytes came back changed", size)
		}
	}
}

func TestCallTooLarge(t *testing.T) {
	_, addr := serve(t, ServerOptions{MaxMessage: 100, Handle: func(_ context.Context, request []byte) [][]byte {
		return [][]byte{request, request}
	}})
	for _, tc := range []struct {
		name    string
		limit   int
		request int
		want    *SizeError
	}{
		{name: "fits", limit: 100, request: 50},
		{name: "request, own limit", limit: 40, request: 41, want: &SizeError{Size: 41, Limit: 40}},
		{name: "request, the peer's limit", limit: 1000, request: 101, want: &SizeError{Peers: true, Size: 101, Limit: 100}},
		{name: "answer, the peer's limit", limit: 1000, request: 51, want: &SizeError{Answer: true, Peers: true, Size: 102, Limit: 100}},
		{name: "answer, own limit", limit: 60, request: 40, want: &SizeError{Answer: true, Size: 80, Limit: 60}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPool(t, ClientOptions{MaxMessage: tc.limit})
			_, err := p.Call(within(t, testTimeout), addr, make([]byte, tc.request))
			var got *SizeError
			switch {
			case tc.want == nil && err != nil:
				t.Fatal(err)
			case tc.want != nil && (!errors.As(err, &got) || *got != *tc.want || !errors.Is(err, ErrTooLarge)):
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			checkEchoTwice(t, p, addr)
		})
	}
}

// checkEchoTwice is checkEcho for a server that repeats each request.
func checkEchoTwice(t *testing.T, p *Pool, addr string) {
	t.Helper()
	if got, err := p.Call(within(t, testTimeout), addr, []byte("a")); err != nil || string(got) != "aa" {
		t.Errorf("after it: %q, %v", got, err)
	}
}

func TestManyCallers(t *testing.T) {
	const callers, calls = 64, 100
	_, addr := serve(t, ServerOptions{Handle: echo})
	p := newPool(t, ClientOptions{})
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for call := range calls {
				want := bytes.Repeat(fmt.Appendf(nil, "%d/%d ", caller, call), 1+call*caller)
				got, err := p.Call(t.Context(), addr, want)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("caller %d, call %d: %d bytes of %d, %v", caller, call, len(got), len(want), err)
					return
				}
			}
		})
	}
	wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.conns) != 1 || len(p.peers) != 1 {
		t.Errorf("the pool has %d connections to %d peers, want one", len(p.conns), len(p.peers))
	}
}

// TestContext ends calls by their contexts while the handler runs.
func TestContext(t *testing.T) {
	running := make(chan context.Context, 20)
	_, addr := serve(t, ServerOptions{Handle: func(ctx context.Context, request []byte) [][]byte {
		if string(request) == "wait" {
			running <- ctx
			<-ctx.Done()
			<-time.After(50 * time.Millisecond) // otherwise the answer could arrive in time
		}
		return [][]byte{request}
	}})
	p := newPool(t, ClientOptions{})
	t.Run("canceled", func(t *testing.T) {
		cause := errors.New("changed my mind")
		ctx, cancel := context.WithCancelCause(t.Context())
		handlers := make(chan context.Context, 1)
		go func() {
			handlers <- <-running
			cancel(cause)
		}()
		_, err := p.Call(ctx, addr, []byte("wait"))
		if !errors.Is(err, cause) || errors.Is(err, ErrTimeout) {
			t.Errorf("got %v", err)
		}
		<-(<-handlers).Done() // the handler's context ends too
	})
	t.Run("deadline", func(t *testing.T) {
		for limit := 100 * time.Millisecond; len(running) == 0; limit *= 2 { // on a busy machine no handler may run in time
			if limit > time.Minute {
				t.Fatal("the request did not reach the handler")
			}
			_, err := p.Call(within(t, limit), addr, []byte("wait"))
			if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		}
		<-(<-running).Done()
	})
	checkEcho(t, p, addr)
}

// TestPeerComesBack calls a peer that is absent, starts, stops and starts again. At most one call misses a change.
func TestPeerComesBack(t *testing.T) {
	ln := listen(t)
	addr := ln.Addr().String()
	ln.Close()
	p := newPool(t, ClientOptions{})
	refused := func() {
		t.Helper()
		const promptly, least, most = time.Second, 3, 20
		fastest := time.Hour // of the calls that follow a refusal; on a busy machine some are slow
		for n := 0; n < least || n < most && fastest > promptly; n++ {
			start := time.Now()
			_, err := p.Call(within(t, testTimeout), addr, []byte("x"))
			if !errors.Is(err, ErrConnection) || !errors.Is(err, syscall.ECONNREFUSED) {
				t.Fatalf("got %v, want a refused connection", err)
			}
			if n > 0 {
				fastest = min(fastest, time.Since(start))
			}
		}
		if fastest > promptly {
			t.Errorf("each refusal took %v or more", fastest)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.conns) != 0 {
			t.Errorf("%d failed connections are kept", len(p.conns))
		}
	}
	refused()
	for range 3 {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			t.Skipf("the port is in use: %v", err)
		}
		s := Serve(ln, ServerOptions{Handle: echo})
		checkEcho(t, p, addr)
		s.Close()
		// A call that begins before the pool has noticed the end may fail with another error.
		_, _ = p.Call(within(t, testTimeout), addr, []byte("x"))
		refused()
	}
}

// TestFailuresTogether has many callers that notice the absence of a peer at the same time.
func TestFailuresTogether(t *testing.T) {
	ln := listen(t)
	addr := ln.Addr().String()
	ln.Close()
	_, good := serve(t, ServerOptions{Handle: echo})
	p := newPool(t, ClientOptions{})
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 5 {
				if _, err := p.Call(t.Context(), addr, []byte("x")); !errors.Is(err, ErrConnection) {
					t.Errorf("got %v", err)
				}
				if _, err := p.Call(t.Context(), good, []byte("x")); err != nil {
					t.Errorf("the good peer: %v", err)
				}
			}
		})
	}
	wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.conns) != 1 {
		t.Errorf("%d connections are kept, want the good one", len(p.conns))
	}
}

// TestNoBackgroundDial calls a silent peer: afterwards nothing tries to connect to it.
func TestNoBackgroundDial(t *testing.T) {
	ended := make(chan error, 1)
	addr := fakePeer(t, func(c net.Conn, _ <-chan struct{}) {
		for err := error(nil); ; {
			if _, err = c.Read(make([]byte, 1<<10)); err != nil {
				ended <- err
				return
			}
		}
	})
	p := newPool(t, ClientOptions{})
	if _, err := p.Call(within(t, 2*time.Second), addr); !errors.Is(err, ErrTimeout) { // it connects in this time
		t.Errorf("got %v", err)
	}
	<-ended
	if len(p.conns) != 0 || len(p.peers) != 0 {
		t.Error("the connection is kept")
	}
}

func TestProbe(t *testing.T) {
	_, addr := serve(t, ServerOptions{Handle: echo})
	p := newPool(t, ClientOptions{})
	if got, err := p.Probe(within(t, testTimeout), addr, []byte("x")); err != nil || string(got) != "x" {
		t.Errorf("got %q, %v", got, err)
	}
	if len(p.conns) != 0 {
		t.Error("the probe's connection is kept")
	}
}

// TestCloseDuringCall closes the pool during a call.
func TestCloseDuringCall(t *testing.T) {
	running := make(chan struct{}, 1)
	_, addr := serve(t, ServerOptions{Handle: func(ctx context.Context, _ []byte) [][]byte {
		running <- struct{}{}
		<-ctx.Done()
		return nil
	}})
	p := newPool(t, ClientOptions{})
	ended := callAside(t, p, addr)
	<-running
	p.Close()
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("the call under way: %v", err)
	}
	if _, err := p.Call(within(t, testTimeout), addr); !errors.Is(err, ErrClosed) {
		t.Errorf("a later call: %v", err)
	}
}
