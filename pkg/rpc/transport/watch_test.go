package transport

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// watchRecorder records the calls of ServerOptions.Watched.
type watchRecorder struct {
	hello chan string
	ended chan error
}

func newWatchRecorder() watchRecorder {
	return watchRecorder{hello: make(chan string, 8), ended: make(chan error, 8)}
}

func (w watchRecorder) watched(hello []byte) (func(error), error) {
	w.hello <- string(hello)
	if string(hello) == "unknown" {
		return nil, errors.New("I know no such peer")
	}
	return func(err error) { w.ended <- err }, nil
}

// watching is a watch under way.
type watching struct {
	stop  context.CancelCauseFunc
	ended chan error
}

// watch starts a watch and returns when both ends have registered it.
func watch(t *testing.T, p *Pool, addr string, w watchRecorder) watching {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- p.Watch(ctx, addr, []byte("worker1"), func() { close(begun) }) }()
	select {
	case <-begun:
	case err := <-ended:
		t.Fatalf("the watch did not begin: %v", err)
	}
	if hello := <-w.hello; hello != "worker1" {
		t.Fatalf("hello is %q", hello)
	}
	return watching{stop: cancel, ended: ended}
}

var errEnough = errors.New("enough")

// TestWatchEnds ends watches in all ways and checks the result at both ends. Nil is an orderly end.
func TestWatchEnds(t *testing.T) {
	for _, tc := range []struct {
		name           string
		end            func(s *Server, p *Pool, addr string, w watching, between *proxy)
		client, server error
	}{
		{
			name:   "the client says goodbye",
			end:    func(_ *Server, _ *Pool, _ string, w watching, _ *proxy) { w.stop(errEnough) },
			client: errEnough,
		},
		{
			name: "the server says goodbye",
			end: func(s *Server, _ *Pool, _ string, _ watching, _ *proxy) {
				_ = s.Shutdown(context.Background()) //nolint:usetesting // independent of the test's context
			},
			server: ErrClosed,
		},
		{
			name:   "the server is killed",
			end:    func(s *Server, _ *Pool, _ string, _ watching, _ *proxy) { s.Close() },
			client: ErrConnection, server: ErrClosed,
		},
		{
			name:   "the client is killed",
			end:    func(_ *Server, p *Pool, _ string, _ watching, _ *proxy) { p.Close() },
			client: ErrClosed, server: ErrConnection,
		},
		{
			name:   "the connection breaks",
			end:    func(_ *Server, _ *Pool, _ string, _ watching, between *proxy) { between.cut() },
			client: ErrConnection, server: ErrConnection,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWatchRecorder()
			s, behind := serve(t, ServerOptions{Handle: echo, Watched: w.watched})
			between := newProxy(t, behind, 0)
			p := newPool(t, ClientOptions{})
			first := watch(t, p, between.addr(), w)
			checkEcho(t, p, between.addr()) // on the same connection as the watch
			tc.end(s, p, between.addr(), first, between)
			if err := <-first.ended; !errors.Is(err, tc.client) {
				t.Errorf("the client's end: %v, want %v", err, tc.client)
			}
			if err := <-w.ended; !errors.Is(err, tc.server) {
				t.Errorf("the server's end: %v, want %v", err, tc.server)
			}
		})
	}
}

// TestWatchSilence stops the network. The server sends a keep-alive ping after a second.
func TestWatchSilence(t *testing.T) {
	t.Parallel()
	w := newWatchRecorder()
	_, behind := serve(t, ServerOptions{Watched: w.watched, Quiet: time.Second, Timeout: 500 * time.Millisecond})
	between := newProxy(t, behind, 0)
	p := newPool(t, ClientOptions{})
	first := watch(t, p, between.addr(), w)
	between.freeze()
	start := time.Now()
	if err := <-w.ended; !errors.Is(err, ErrConnection) {
		t.Errorf("the server's end: %v", err)
	}
	if took := time.Since(start); took > 12*time.Second {
		t.Errorf("the server noticed it after %v", took)
	}
	start = time.Now()
	first.stop(errEnough) // returns although the peer does not receive the goodbye
	if err := <-first.ended; !errors.Is(err, errEnough) {
		t.Errorf("the client's end: %v", err)
	}
	if took := time.Since(start); took > 9*time.Second { // before the client's first keep-alive ping
		t.Errorf("the client noticed it after %v", took)
	}
}

// TestCloseStuck closes the pool while much data is on its way to a peer that reads nothing.
func TestCloseStuck(t *testing.T) {
	w := newWatchRecorder()
	_, behind := serve(t, ServerOptions{Handle: echo, Watched: w.watched})
	between := newProxy(t, behind, 0)
	p := newPool(t, ClientOptions{Timeout: time.Minute})
	first := watch(t, p, between.addr(), w)
	between.freeze()
	ended := make(chan error, 4)
	for range cap(ended) {
		go func() {
			_, err := p.Call(t.Context(), between.addr(), make([]byte, 32<<20))
			ended <- err
		}()
	}
	select { // wait until the buffers of the socket are full
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(300 * time.Millisecond):
	}
	start := time.Now()
	p.Close()
	for range cap(ended) {
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Errorf("a call: %v", err)
		}
	}
	if err := <-first.ended; !errors.Is(err, ErrClosed) {
		t.Errorf("the watch: %v", err)
	}
	if took := time.Since(start); took > 30*time.Second { // half the keep-alive time-out
		t.Errorf("Close took %v", took)
	}
}

func TestWatchRefused(t *testing.T) {
	w := newWatchRecorder()
	_, addr := serve(t, ServerOptions{Handle: echo, Watched: w.watched})
	_, blind := serve(t, ServerOptions{Handle: echo})
	p := newPool(t, ClientOptions{MaxMessage: 100})
	for _, tc := range []struct {
		name, addr, hello string
		want              error
		text              string
	}{
		{"unwanted", addr, "unknown", ErrRefused, "I know no such peer"},
		{"no watches", blind, "x", ErrRefused, ""},
		{"hello too large", addr, strings.Repeat("x", 101), ErrTooLarge, "101 bytes"},
		{"another service", otherService(t), "x", ErrVersion, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := p.Watch(within(t, testTimeout), tc.addr, []byte(tc.hello), func() { t.Error("the watch began") })
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
	checkEcho(t, p, addr)
}

// TestWatchBadPeers watches the bad peers.
func TestWatchBadPeers(t *testing.T) {
	_, client := newCA(t).load(t)
	plain, secure := newPool(t, ClientOptions{}), newPool(t, ClientOptions{TLS: client})
	for _, tc := range badPeers {
		t.Run(tc.name, func(t *testing.T) {
			p, limit := plain, testTimeout
			if tc.secure {
				p = secure
			}
			want := []error{tc.want, ErrRefused} // servers of this package that accept no watch
			if errors.Is(tc.want, ErrTimeout) {
				limit = 200 * time.Millisecond
			}
			err := p.Watch(within(t, limit), tc.start(t), []byte("x"), nil)
			if !errors.Is(err, want[0]) && !errors.Is(err, want[1]) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}
