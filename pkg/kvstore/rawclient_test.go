package kvstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// rawClient is a raw connection to a server. Whatever the server sends is read at once, so that the server
// never waits for it.
type rawClient struct {
	t    testing.TB
	g    Generation
	nc   net.Conn
	came chan byte // closed at the end of the connection
}

const patience = 10 * time.Second

func newRawClient(t testing.TB, g Generation, nc net.Conn) *rawClient {
	t.Helper()
	c := &rawClient{t: t, g: g, nc: nc, came: make(chan byte, 1<<16)}
	go func() {
		defer close(c.came)
		buf := make([]byte, 4096)
		for {
			n, err := nc.Read(buf)
			for _, b := range buf[:n] {
				c.came <- b
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(c.close)
	if g == TodaysGeneration {
		c.write(handshake)
	}
	return c
}

// dial connects over TCP.
func dial(t testing.TB, addr string, g Generation) *rawClient {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return newRawClient(t, g, nc)
}

// pipe connects without the network: the server reads in exactly the pieces that are written.
func pipe(t testing.TB, s *Server, g Generation) *rawClient {
	t.Helper()
	theirs, ours := net.Pipe()
	s.start(theirs)
	return newRawClient(t, g, ours)
}

func (c *rawClient) close() {
	c.nc.Close()
	for range c.came {
	}
}

func (c *rawClient) write(b []byte) {
	c.t.Helper()
	if _, err := c.nc.Write(b); err != nil {
		c.t.Errorf("write: %v", err)
	}
}

func (c *rawClient) send(o op, fields ...any) {
	c.t.Helper()
	c.write(encode(c.g, o, fields...))
}

// read reads n bytes, or fewer at the end of the connection.
func (c *rawClient) read(n int) []byte {
	c.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var got []byte
	for len(got) < n {
		select {
		case b, ok := <-c.came:
			if !ok {
				return got
			}
			got = append(got, b)
		case <-timer.C:
			c.t.Fatalf("no answer: %x of %d bytes came", got, n)
		}
	}
	return got
}

// expect checks that the server's next bytes are want: strings as values, ints as i, bytes as they are.
func (c *rawClient) expect(want ...any) {
	c.t.Helper()
	var b []byte
	for _, w := range want {
		switch w := w.(type) {
		case string:
			b = appendValue(b, []byte(w))
		case int:
			b = appendInt(b, int64(w))
		case uint32:
			b = binary.LittleEndian.AppendUint32(b, w)
		case byte:
			b = append(b, w)
		}
	}
	if got := c.read(len(b)); !bytes.Equal(got, b) {
		c.t.Fatalf("server sent %x, want %x", got, b)
	}
}

// ping checks that the server has answered all that came before and nothing else.
func (c *rawClient) ping() {
	c.t.Helper()
	if c.g == TodaysGeneration {
		c.send(opPing, uint32(0x1234567))
		c.expect(uint32(0x1234567))
		return
	}
	c.send(opCheck, 0)
	c.expect(answerReady)
}

func (c *rawClient) expectClosed() {
	c.t.Helper()
	if got := c.read(1); len(got) > 0 {
		c.t.Fatalf("server sent %x, want the end of the connection", got)
	}
}

// startServer serves on a TCP port of its own until the test ends.
func startServer(t testing.TB, opts ServerOptions) (*Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(opts)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; !errors.Is(err, ErrClosed) {
			t.Errorf("Serve = %v, want ErrClosed", err)
		}
	})
	return s, l.Addr().String()
}

// pipeServer is a server for pipes only.
func pipeServer(t testing.TB, opts ServerOptions) *Server {
	t.Helper()
	s := NewServer(opts)
	t.Cleanup(func() { s.Close() })
	return s
}

var _ io.Closer = (*Server)(nil)
