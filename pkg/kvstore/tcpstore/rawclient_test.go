package tcpstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// rawClient sends single requests to a server and checks the bytes of its replies.
type rawClient struct {
	t  testing.TB
	p  Protocol
	nc wire
}

// wire is a rawClient's end of a connection.
type wire interface {
	Write(b []byte) (int, error)
	// read returns n bytes, or fewer at the end of the connection.
	read(t testing.TB, n int) []byte
	Close() error
}

const testTimeout = time.Minute

func newRawClient(t testing.TB, p Protocol, nc wire) *rawClient {
	t.Helper()
	c := &rawClient{t: t, p: p, nc: nc}
	t.Cleanup(c.close)
	if p == ProtocolV2 {
		c.write(handshake)
	}
	return c
}

func (c *rawClient) close() { c.nc.Close() }

func (c *rawClient) write(b []byte) {
	c.t.Helper()
	if _, err := c.nc.Write(b); err != nil {
		c.t.Errorf("write: %v", err)
	}
}

func (c *rawClient) send(o op, fields ...any) {
	c.t.Helper()
	c.write(encode(c.p, o, fields...))
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
	if got := c.nc.read(c.t, len(b)); !bytes.Equal(got, b) {
		c.t.Fatalf("server sent %x, want %x", got, b)
	}
}

// ping checks that the server has answered all earlier requests and sent nothing else.
func (c *rawClient) ping() {
	c.t.Helper()
	if c.p == ProtocolV2 {
		c.send(opPing, uint32(0x1234567))
		c.expect(uint32(0x1234567))
		return
	}
	c.send(opCheck, 0)
	c.expect(replyReady)
}

func (c *rawClient) expectClosed() {
	c.t.Helper()
	if got := c.nc.read(c.t, 1); len(got) > 0 {
		c.t.Fatalf("server sent %x, want the end of the connection", got)
	}
}

// tcpWire is a TCP connection. It reads what the server sends at once, so that the server never waits for it.
type tcpWire struct {
	net.Conn
	came chan byte // closed at the end of the connection
}

// dial connects over TCP.
func dial(t testing.TB, addr string, p Protocol) *rawClient {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	w := &tcpWire{Conn: nc, came: make(chan byte, 1<<16)}
	go func() {
		defer close(w.came)
		buf := make([]byte, 4096)
		for {
			n, err := nc.Read(buf)
			for _, b := range buf[:n] {
				w.came <- b
			}
			if err != nil {
				return
			}
		}
	}()
	return newRawClient(t, p, w)
}

func (w *tcpWire) read(t testing.TB, n int) []byte {
	t.Helper()
	timer := time.NewTimer(testTimeout)
	defer timer.Stop()
	var got []byte
	for len(got) < n {
		select {
		case b, ok := <-w.came:
			if !ok {
				return got
			}
			got = append(got, b)
		case <-timer.C:
			t.Fatalf("no answer: %x of %d bytes came", got, n)
		}
	}
	return got
}

func (w *tcpWire) Close() error {
	err := w.Conn.Close()
	for range w.came {
	}
	return err
}

// startServer serves on a TCP port of its own until the test ends.
func startServer(t testing.TB, opts ServerOptions) (*Server, string) {
	t.Helper()
	l := listen(t)
	s := NewServer(opts)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; !errors.Is(err, kvstore.ErrClosed) {
			t.Errorf("Serve = %v, want ErrClosed", err)
		}
	})
	return s, l.Addr().String()
}

// inLoop calls f in the loop of a server that serves already.
func (s *Server) inLoop(f func(l *loop)) {
	s.mu.Lock()
	l := s.loop
	s.mu.Unlock()
	l.call(func() { f(l) })
}

// steppedLoop is a loop without a goroutine. It steps when one of its clients has written or reads, and when the test
// calls step. So it reads in exactly the pieces that were written, and at the time that the test chooses.
type steppedLoop struct {
	*loop
	t testing.TB
}

func stepLoop(t testing.TB, opts ServerOptions) steppedLoop {
	t.Helper()
	l, err := newLoop(NewServer(opts).opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.stop(false)
		l.poll.close()
	})
	return steppedLoop{l, t}
}

// step handles all pending events.
func (l steppedLoop) step() {
	l.t.Helper()
	for {
		n, err := l.loop.step(0)
		if err != nil {
			l.t.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
}

// connect makes a connection.
func (l steppedLoop) connect(p Protocol) *rawClient {
	l.t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, fd := range pair {
		if err := unix.SetNonblock(fd, true); err != nil {
			l.t.Fatal(err)
		}
	}
	l.addConn(pair[0], &net.UnixAddr{})
	return newRawClient(l.t, p, &steppedWire{loop: l, fd: pair[1]})
}

// steppedWire is the client's end of a connection of a steppedLoop.
type steppedWire struct {
	loop   steppedLoop
	fd     int
	closed bool
}

// Write does not fail if the server has closed the connection, which it may do while it reads.
func (w *steppedWire) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n, err := sockWrite(w.fd, rest)
		if err != nil && !wouldBlock(err) {
			break
		}
		w.loop.step()
		rest = rest[n:]
	}
	return len(b), nil
}

func (w *steppedWire) read(t testing.TB, n int) []byte {
	t.Helper()
	var got []byte
	buf := make([]byte, n)
	for len(got) < n {
		w.loop.step()
		m, err := sockRead(w.fd, buf[:n-len(got)])
		if err != nil && wouldBlock(err) {
			t.Fatalf("no answer: %x of %d bytes came", got, n)
		}
		if m == 0 {
			return got
		}
		got = append(got, buf[:m]...)
	}
	return got
}

func (w *steppedWire) Close() error {
	if !w.closed {
		w.closed = true
		unix.Close(w.fd)
		w.loop.step()
	}
	return nil
}
