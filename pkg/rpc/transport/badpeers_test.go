package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
)

// fakePeer returns the address of a peer that runs do with each connection and then closes it. done is closed at the
// end of the test.
func fakePeer(t *testing.T, do func(c net.Conn, done <-chan struct{})) string {
	t.Helper()
	ln, done := listen(t), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				do(c, done)
			})
		}
	})
	t.Cleanup(func() {
		close(done)
		ln.Close()
		wg.Wait()
	})
	return ln.Addr().String()
}

// webServer returns the address of a web server that speaks HTTP/1 or, without TLS, HTTP/2.
func webServer(t *testing.T, two bool, handle http.HandlerFunc) string {
	t.Helper()
	ln, served := listen(t), make(chan struct{})
	s := &http.Server{Handler: handle, Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(!two)
	s.Protocols.SetUnencryptedHTTP2(two)
	go func() {
		defer close(served)
		_ = s.Serve(ln)
	}()
	t.Cleanup(func() {
		s.Close()
		<-served
	})
	return ln.Addr().String()
}

// otherService returns the address of a gRPC server without the service of this package.
func otherService(t *testing.T) string {
	t.Helper()
	ln, served, s := listen(t), make(chan struct{}), grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "elasticrun.rpc.v0.Worker", HandlerType: (*any)(nil)}, s)
	go func() {
		defer close(served)
		_ = s.Serve(ln)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-served
	})
	return ln.Addr().String()
}

// badPeers are peers that answer no call. text is a part of the error that the user reads.
var badPeers = []struct {
	name   string
	secure bool // call it with TLS
	start  func(t *testing.T) string
	want   error
	text   string
}{
	{name: "refuses", want: ErrConnection, text: "connection refused", start: func(t *testing.T) string {
		t.Helper()
		ln := listen(t)
		ln.Close()
		return ln.Addr().String()
	}},
	{name: "no port", want: ErrConnection, text: "missing port", start: func(*testing.T) string { return "127.0.0.1" }},
	{name: "says nothing", want: ErrTimeout, start: func(t *testing.T) string {
		t.Helper()
		return fakePeer(t, func(_ net.Conn, done <-chan struct{}) { <-done })
	}},
	{name: "says nothing, TLS", secure: true, want: ErrTimeout, start: func(t *testing.T) string {
		t.Helper()
		return fakePeer(t, func(_ net.Conn, done <-chan struct{}) { <-done })
	}},
	{name: "closes at once", want: ErrConnection, start: func(t *testing.T) string {
		t.Helper()
		return fakePeer(t, func(net.Conn, <-chan struct{}) {})
	}},
	{name: "closes after the request", want: ErrConnection, start: func(t *testing.T) string {
		t.Helper()
		return fakePeer(t, func(c net.Conn, _ <-chan struct{}) { _, _ = c.Read(make([]byte, 1<<10)) })
	}},
	{name: "closes half-way through the answer", want: ErrConnection, start: func(t *testing.T) string {
		t.Helper()
		_, addr := serve(
			t,
			ServerOptions{Handle: func(context.Context, []byte) [][]byte { return [][]byte{make([]byte, 1<<20)} }},
		)
		return newProxy(t, addr, 100<<10).addr()
	}},
	{name: "ends half-way through the answer", want: ErrConnection, start: func(t *testing.T) string {
		t.Helper()
		return webServer(t, true, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc+elasticrun")
			w.Header().Set("Trailer", "Grpc-Status")
			_, _ = w.Write([]byte{0, 0, 0, 0, 100, 'h', 'a', 'l', 'f'})
			w.Header().Set("Grpc-Status", "0")
		})
	}},
	{name: "answers too late", want: ErrTimeout, start: func(t *testing.T) string {
		t.Helper()
		_, addr := serve(t, ServerOptions{Handle: func(ctx context.Context, _ []byte) [][]byte {
			<-ctx.Done()
			<-time.After(50 * time.Millisecond)
			return [][]byte{[]byte("late")}
		}})
		return addr
	}},
	{name: "HTTP/1", want: ErrProtocol, text: `"HTTP/1.1 "`, start: func(t *testing.T) string {
		t.Helper()
		return webServer(t, false, http.NotFound)
	}},
	{name: "HTTP/1, TLS", secure: true, want: ErrProtocol, text: `"HTTP/1.`, start: func(t *testing.T) string {
		t.Helper()
		return webServer(t, false, http.NotFound)
	}},
	{name: "HTTP/2 without gRPC", want: ErrProtocol, text: "404", start: func(t *testing.T) string {
		t.Helper()
		return webServer(t, true, http.NotFound)
	}},
	{name: "HTTP/2 that answers every request", want: ErrProtocol, text: "200", start: func(t *testing.T) string {
		t.Helper()
		return webServer(t, true, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "welcome") })
	}},
	{name: "HTTP/2 that fails", want: ErrProtocol, text: "500", start: func(t *testing.T) string {
		t.Helper()
		return webServer(
			t,
			true,
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		)
	}},
	{name: "HTTP/2 without a backend", want: ErrConnection, text: "502", start: func(t *testing.T) string {
		t.Helper()
		return webServer(t, true, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	}},
	{name: "gRPC that denies permission", want: ErrConnection, text: "PermissionDenied", start: func(t *testing.T) string {
		t.Helper()
		return webServer(t, true, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Grpc-Status", "7")
		})
	}},
	{name: "cuts the answer off", want: ErrConnection, start: func(t *testing.T) string {
		t.Helper()
		return webServer(t, true, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc+elasticrun")
			_, _ = w.Write([]byte{0, 0, 0, 0, 100, 'h', 'a', 'l', 'f'})
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
	}},
	{name: "garbage", want: ErrProtocol, text: "SSH-2.0-O", start: func(t *testing.T) string {
		t.Helper()
		return fakePeer(t, func(c net.Conn, _ <-chan struct{}) {
			_, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.9\r\n")
			_, _ = c.Read(make([]byte, 1<<10))
		})
	}},
	{name: "another service", want: ErrVersion, text: "elasticrun.rpc.v1.Worker", start: otherService},
	{
		name:   "TLS to a plain peer",
		secure: true,
		want:   ErrConnection,
		text:   "this side speaks TLS, but the peer does not",
		start: func(t *testing.T) string {
			t.Helper()
			_, addr := serve(t, ServerOptions{Handle: echo})
			return addr
		},
	},
	{name: "plain to a TLS peer", want: ErrConnection, text: "TLS", start: func(t *testing.T) string {
		t.Helper()
		server, _ := newCA(t).load(t)
		_, addr := serve(t, ServerOptions{Handle: echo, TLS: server})
		return addr
	}},
	{name: "TLS of another CA", secure: true, want: ErrConnection, text: "certificate", start: func(t *testing.T) string {
		t.Helper()
		server, _ := newCA(t).load(t)
		_, addr := serve(t, ServerOptions{Handle: echo, TLS: server})
		return addr
	}},
}

// TestBadPeers calls each bad peer, and then good peers with the same pool.
func TestBadPeers(t *testing.T) {
	t.Parallel()
	server, client := newCA(t).load(t)
	pool := map[bool]*Pool{false: newPool(t, ClientOptions{}), true: newPool(t, ClientOptions{TLS: client})}
	good := map[bool]string{}
	for secure, config := range map[bool]*tls.Config{false: nil, true: server} {
		_, good[secure] = serve(t, ServerOptions{Handle: echo, TLS: config})
	}
	for _, tc := range badPeers {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			addr, p := tc.start(t), pool[tc.secure]
			ask := map[string]func(context.Context) error{
				"call":  func(ctx context.Context) error { _, err := p.Call(ctx, addr, []byte("x")); return err },
				"again": func(ctx context.Context) error { _, err := p.Call(ctx, addr, []byte("x")); return err },
				"probe": func(ctx context.Context) error { _, err := p.Probe(ctx, addr, []byte("x")); return err },
			}
			for name, do := range ask {
				start, limit := time.Now(), testTimeout
				if tc.want == ErrTimeout { //nolint:errorlint // compares entries of the table
					limit = 300 * time.Millisecond
				}
				err := do(within(t, limit))
				var e *Error
				if err == nil || !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) || !errors.As(err, &e) ||
					e.Addr != addr {
					t.Fatalf("%s: got %v, want %q with %q, and the address", name, err, tc.want, tc.text)
				}
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: more than one line: %q", name, err)
				}
				if took := time.Since(start); took > limit+10*time.Second {
					t.Errorf("%s: it took %v", name, took)
				}
			}
			checkEcho(t, p, good[tc.secure])
		})
	}
}
