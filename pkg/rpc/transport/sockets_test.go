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

// heardListener tells of the bytes that come from clients.
type heardListener struct {
	net.Listener
	heard chan int // how many are asked for, when a reading begins
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

// TestSilentClients lets clients connect that never get to speak gRPC: neither end of a server waits for them, and nobody complains of them.
func TestSilentClients(t *testing.T) {
	t.Parallel()
	server, _ := newCA(t).load(t)
	for _, tc := range []struct {
		name string
		tls  *tls.Config
		says string
	}{
		{"silent", nil, ""},
		{"half a greeting", nil, "PRI * HTTP/2.0\r\n"},
		{"no settings", nil, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
		{"silent, TLS", server, ""},
		{"half a greeting, TLS", server, "\x16\x03\x01\x02\x00\x01"},
	} {
		for name, end := range map[string]func(*Server) error{
			"close":    (*Server).Close,
			"shutdown": func(s *Server) error { return s.Shutdown(context.Background()) }, //nolint:usetesting // the test's may be over
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
					t.Errorf("it took %v", took)
				}
				if log.Len() > 0 {
					t.Errorf("it says: %s", &log)
				}
				_ = c.SetDeadline(time.Now().Add(10 * time.Second))
				if _, err := io.Copy(io.Discard, c); errors.Is(err, context.DeadlineExceeded) {
					t.Error("the client's connection is open yet")
				}
			})
		}
	}
}

// TestSocketsKnowTheUnspoken looks at whom a server takes for silent.
func TestSocketsKnowTheUnspoken(t *testing.T) {
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
		t.Error("one whose handshake goes on is not known")
	}
	_ = speaks.SetDeadline(time.Time{})
	_, leaves := accept()
	leaves.Close()
	if count() != 0 {
		t.Error("one that has spoken, or is gone, is known yet")
	}
	silent, _ := accept()
	s.end()
	if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the silent one reads: %v", err)
	}
	if _, err := speaks.Write([]byte("x")); err != nil {
		t.Errorf("the one that has spoken is closed too: %v", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := s.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("somebody is accepted after the end: %v", err)
		}
	})
	late, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if _, err := late.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("one that comes after the end reads: %v", err)
	}
	ln.Close()
	wg.Wait()
}

// TestServerForgetsTheUnspoken calls a server, with TLS and without: whoever has called is taken for silent no more.
func TestServerForgetsTheUnspoken(t *testing.T) {
	server, client := newCA(t).load(t)
	for secure, config := range map[bool][2]*tls.Config{false: {}, true: {server, client}} {
		s, addr := serve(t, ServerOptions{Handle: echo, TLS: config[0]})
		checkEcho(t, newPool(t, ClientOptions{TLS: config[1]}), addr)
		s.sockets.mu.Lock()
		if n := len(s.sockets.shaking); n != 0 {
			t.Errorf("TLS %v: %d connections are", secure, n)
		}
		s.sockets.mu.Unlock()
	}
}
