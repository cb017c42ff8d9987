package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// heardListener reports the bytes that clients send.
type heardListener struct {
	net.Listener
	heard chan int // size of each read, when it starts
}

func (l heardListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return heardConn{c, l.heard}, err
}

type heardConn struct {
	net.Conn
	heard chan int
}

func (c heardConn) Read(p []byte) (int, error) {
	select {
	case c.heard <- len(p):
	default:
	}
	return c.Conn.Read(p)
}

// TestSilentClients has clients that connect but never speak gRPC. Close and Shutdown do not wait for them, and the
// server logs nothing.
func TestSilentClients(t *testing.T) {
	t.Parallel()
	server, _ := newCA(t).load(t)
	for _, tc := range []struct {
		name string
		tls  *tls.Config
		says string
	}{
		{"silent", nil, ""},
		{"half a preface", nil, "PRI * HTTP/2.0\r\n"},
		{"no settings", nil, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
		{"silent, TLS", server, ""},
		{"half a preface, TLS", server, "\x16\x03\x01\x02\x00\x01"},
	} {
		for name, end := range map[string]func(*Server) error{
			"close":    (*Server).Close,
			"shutdown": func(s *Server) error { return s.Shutdown(context.Background()) }, //nolint:usetesting // the test's context may have ended
		} {
			t.Run(tc.name+", "+name, func(t *testing.T) {
				t.Parallel()
				var log bytes.Buffer
				heard := make(chan int, 1)
				s := Serve(heardListener{listen(t), heard}, ServerOptions{TLS: tc.tls, Handle: echo, Logger: zerolog.New(&log)})
				c, err := net.Dial("tcp", s.sockets.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				<-heard
				if _, err := io.WriteString(c, tc.says); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				if err := end(s); err != nil {
					t.Error(err)
				}
				if took := time.Since(start); took > handshakeTimeout/2 {
					t.Errorf("the end took %v", took)
				}
				if log.Len() > 0 {
					t.Errorf("log: %s", &log)
				}
				_ = c.SetDeadline(time.Now().Add(10 * time.Second))
				if _, err := io.Copy(io.Discard, c); errors.Is(err, context.DeadlineExceeded) {
					t.Error("the connection of the client is still open")
				}
			})
		}
	}
}

// TestSocketsTrackHandshakes checks which connections count as silent.
func TestSocketsTrackHandshakes(t *testing.T) {
	ln := listen(t)
	s := newSockets(ln, time.Second)
	count := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.shaking)
	}
	accept := func() (client, accepted net.Conn) {
		t.Helper()
		client, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		if accepted, err = s.Accept(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { accepted.Close() })
		return client, accepted
	}
	_, speaks := accept()
	_ = speaks.SetDeadline(time.Now().Add(time.Hour))
	if count() != 1 {
		t.Error("a connection during its handshake is not tracked")
	}
	_ = speaks.SetDeadline(time.Time{})
	_, leaves := accept()
	leaves.Close()
	if count() != 0 {
		t.Error("a connection that finished its handshake or closed is still tracked")
	}
	silent, _ := accept()
	s.end()
	if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read on the silent connection: %v", err)
	}
	if _, err := speaks.Write([]byte("x")); err != nil {
		t.Errorf("the connection after its handshake is closed too: %v", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := s.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accepted after the end: %v", err)
		}
	})
	late, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if _, err := late.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read on a connection after the end: %v", err)
	}
	ln.Close()
	wg.Wait()
}

// TestServerForgetsHandshakes calls a server with and without TLS: a connection that made a call does not count as
// silent.
func TestServerForgetsHandshakes(t *testing.T) {
	server, client := newCA(t).load(t)
	for secure, config := range map[bool][2]*tls.Config{false: {}, true: {server, client}} {
		s, addr := serve(t, ServerOptions{Handle: echo, TLS: config[0]})
		checkEcho(t, newPool(t, ClientOptions{TLS: config[1]}), addr)
		s.sockets.mu.Lock()
		if n := len(s.sockets.shaking); n != 0 {
			t.Errorf("TLS %v: %d connections count as silent", secure, n)
		}
		s.sockets.mu.Unlock()
	}
}
