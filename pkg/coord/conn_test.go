package coord

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// dialRaw returns a connection with a session, for tests that send frames themselves.
func dialRaw(t testing.TB, addr string) (net.Conn, *bufio.Reader) {
	t.Helper()
	g := attempt{opts: &DialOptions{Addr: addr}}
	got, err := g.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { got.nc.Close() })
	return got.nc, got.in
}

// waitMalformed waits until the server has counted that many malformed connections and has conns connections left.
func waitMalformed(t *testing.T, s *Server, malformed uint64, conns int) {
	t.Helper()
	for end := time.Now().Add(testTimeout); ; runtime.Gosched() {
		stats := s.Stats()
		if stats.Malformed == malformed && stats.Conns == conns {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("stats %+v, want %d malformed connections and %d open", stats, malformed, conns)
		}
	}
}

// TestGarbage sends malformed data before and after the handshake.
func TestGarbage(t *testing.T) {
	s, addr := startServer(t, ServerOptions{})
	well := dial(t, DialOptions{Addr: addr})
	huge := []byte{0xff, 0xff, 0xff, 0xff, byte(kindCommit)}
	n := uint64(0)
	for _, garbage := range [][]byte{
		[]byte("\x80"), []byte(magic), appendPreamble(nil), bytes.Repeat([]byte{0xe5}, 100),
		append(appendPreamble(nil), huge...), append(appendPreamble(nil), 0, 0, 0, 0),
		append(appendPreamble(nil), 0, 0, 4, 1, 1),
		append(appendPreamble(nil), frames()["commit"]...), append(appendPreamble(nil), frames()["join"]...),
	} {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		nc.Write(garbage)
		nc.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, nc)
		nc.Close()
		n++
		waitMalformed(t, s, n, 1)
	}
	for _, garbage := range [][]byte{
		huge, {0, 0, 0, 0}, frames()["hello"], {0, 0, 0, 1, byte(kindCommit)}, {0, 0, 0, 2, 99, 1},
	} {
		nc, in := dialRaw(t, addr)
		nc.Write(garbage)
		io.Copy(io.Discard, in)
		n++
		waitMalformed(t, s, n, 1)
	}
	put(t, well, Op{Key: "k"})
}

// TestHandshakeTimeout lets clients stop in the middle of the handshake.
func TestHandshakeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(ServerOptions{})
		defer s.Close()
		begin := time.Now()
		whole := append(appendPreamble(nil), frames()["hello"]...)
		var ends []net.Conn
		for n := 0; n < len(whole); n += 3 {
			here, there := net.Pipe()
			s.ServeConn(there)
			here.Write(whole[:n])
			ends = append(ends, here)
		}
		synctest.Wait()
		if got := s.Stats().Conns; got != len(ends) {
			t.Errorf("%d connections, want %d", got, len(ends))
		}
		for _, here := range ends {
			io.Copy(io.Discard, here)
		}
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("they were served for %v", took)
		}
		synctest.Wait()
		if stats := s.Stats(); stats.Conns != 0 || stats.Malformed != uint64(len(ends)) {
			t.Errorf("stats %+v", stats)
		}
	})
}

// TestStuckReader has a client that watches and does not read. Others must not wait for it, and it must use little
// memory until it is closed.
func TestStuckReader(t *testing.T) {
	s, addr := startServer(t, ServerOptions{StallTimeout: 500 * time.Millisecond, SessionTTL: time.Hour})
	nc, _ := dialRaw(t, addr)
	nc.Write(appendNumbered(nil, kindWatch, 1, ""))
	well := dial(t, DialOptions{Addr: addr})
	watched := watch(t, well, "")
	value := make([]byte, 1<<20-10)
	begin := time.Now()
	for i := 0; s.Stats().Conns == 2; i++ {
		value = bytes.Clone(value)
		value[0] = byte(i)
		put(t, well, Op{Key: "k", Value: value})
		if b := next(t, watched, "a batch"); len(b.Events) > 1 {
			t.Errorf("a batch of %d events", len(b.Events))
		}
		if time.Since(begin) > testTimeout {
			t.Fatal("a client that reads nothing is not closed")
		}
	}
	var mem runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&mem)
	if mem.HeapAlloc > 64<<20 {
		t.Errorf("%d MiB are in use", mem.HeapAlloc>>20)
	}
}

// TestAnswersAreBounded sends requests without reading the answers. The number of waiting answers must be bounded.
func TestAnswersAreBounded(t *testing.T) {
	s := NewServer(ServerOptions{})
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	c := newConn(s, there)
	c.session = s.core.openSession("s", "token", time.Hour, 0)
	c.writing = true // a writer that never ends
	body := bodyOf(appendNumbered(nil, kindKeepAlive, 1))
	for n := 0; c.handle(kindKeepAlive, body) == nil; n++ {
		if len(c.out) > 2*maxOutbox {
			t.Fatalf("%d answers wait", n)
		}
	}
}

// BenchmarkConnections measures how long 2,000 clients take to get a session and how much memory each uses in the
// server.
func BenchmarkConnections(b *testing.B) {
	const n = 2000
	for b.Loop() {
		s, addr := startServer(b, ServerOptions{Secret: []byte("secret")})
		memory := func() uint64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapInuse + m.StackInuse
		}
		before := memory()
		conns := make([]net.Conn, n)
		opts := DialOptions{Addr: addr, Secret: []byte("secret"), TTL: time.Hour}
		begin := time.Now()
		var dialers sync.WaitGroup
		for first := range 64 {
			dialers.Go(func() {
				for i := first; i < n; i += 64 {
					g := attempt{opts: &opts}
					got, err := g.open(b.Context())
					if err != nil {
						b.Error(err)
						return
					}
					own := "agent/" + string(got.session)
					put := commitRequest{request: 1, ops: []Op{{Key: own, Owned: true, Value: make([]byte, 500)}}}
					got.nc.Write(appendCommit(nil, put))
					got.nc.Write(appendNumbered(nil, kindWatch, 2, "answer/"+string(got.session)))
					for range 2 {
						if _, _, err := readFrame(got.in, maxFrame, make([]byte, frameHeader)); err != nil {
							b.Error(err)
						}
					}
					conns[i] = got.nc
				}
			})
		}
		dialers.Wait()
		took := time.Since(begin)
		b.ReportMetric(float64(took.Milliseconds()), "ms/2000")
		b.ReportMetric(float64(memory()-before)/n, "B/conn")
		if got := s.Sessions(); got != n {
			b.Errorf("%d sessions", got)
		}
		for _, nc := range conns {
			if nc != nil {
				nc.Close()
			}
		}
		_ = s.Close()
	}
	b.Log(fmt.Sprint(n, " connections, each with a key of 500 bytes and a watch; both ends in one process"))
}

// servePending makes a silent connection. It returns a channel that is closed when the store closes the connection.
func servePending(s *Server) (<-chan struct{}, func()) {
	here, there := net.Pipe()
	s.ServeConn(there)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, here)
	}()
	return ended, func() { _ = here.Close() }
}

func isClosed(c <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestPendingConnections checks that connections without a session are bounded and closed oldest first, and that those
// with a session stay.
func TestPendingConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(ServerOptions{MaxMemory: 1 << 20})
		defer s.Close()
		way := &pipeNetwork{server: s}
		agent := dial(t, DialOptions{Addr: "pipe", Conn: way.dial, TTL: time.Hour})
		var pending []<-chan struct{}
		for range minPending + 1 {
			ended, leave := servePending(s)
			defer leave()
			pending = append(pending, ended)
		}
		if !isClosed(pending[0]) || isClosed(pending[1]) {
			t.Error("want exactly the oldest connection closed")
		}
		if n := s.ShedPending(2); n != 2 || !isClosed(pending[2]) || isClosed(pending[3]) {
			t.Errorf("%d are closed", n)
		}
		put(t, agent, Op{Key: "k"})
		<-time.After(s.opts.HandshakeTimeout)
		for i, p := range pending {
			if !isClosed(p) {
				t.Errorf("connection %d is not closed after HandshakeTimeout", i)
			}
		}
		if n := s.ShedPending(1); n != 0 {
			t.Errorf("%d are closed, and none is pending", n)
		}
		put(t, agent, Op{Key: "k"})
		closeStore(t, agent)
	})
}
