package coord

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
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
	return got.nc, bufio.NewReader(got.nc)
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
	send := func(garbage []byte, nc net.Conn, stop func() error) {
		t.Helper()
		nc.Write(garbage)
		_ = stop()
		io.Copy(io.Discard, nc)
		nc.Close()
		n++
		waitMalformed(t, s, n, 1)
	}
	for _, garbage := range [][]byte{
		[]byte("\x80"), []byte(magic), appendPreamble(nil), bytes.Repeat([]byte{0xe5}, 100),
		append(appendPreamble(nil), huge...), append(appendPreamble(nil), 22, 3, 1, 0, 5, 1, 0, 0, 1, 9),
		append(appendPreamble(nil), frames()["hello"]...),
	} {
		nc := connect(t, addr)
		send(garbage, nc, nc.(*net.TCPConn).CloseWrite)
	}
	for _, garbage := range [][]byte{huge, {0, 0, 0, 0}, {0, 0, 4, 1, 1}, frames()["commit"], frames()["join"]} {
		nc := secureRaw(t, addr)
		send(garbage, nc, nc.CloseWrite)
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

// secureRaw returns a connection before its first frame, for tests that send frames themselves.
func secureRaw(t testing.TB, addr string) *secureConn {
	t.Helper()
	a := attempt{opts: &DialOptions{Addr: addr}}
	nc, err := a.exchange(t.Context(), func(net.Conn) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return nc.(*secureConn)
}

// TestHandshakeTimeout lets clients stop in the middle of the handshake.
func TestHandshakeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(ServerOptions{})
		defer s.Close()
		begin := time.Now()
		whole := append(appendPreamble(nil), "\x16\x03\x01\x00\x80 a ClientHello that does not end"...)
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

// TestStuckReader starts a client that watches and does not read. Others must not wait for it, and it must use little
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
						if _, _, err := readFrame(got.nc, maxFrame, make([]byte, frameHeader)); err != nil {
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

// TestAnswersFollowBatches sends changes and a keep-alive to a connection that cannot write at the moment. The client
// receives the changes first.
func TestAnswersFollowBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(ServerOptions{})
		a := attempt{opts: &DialOptions{Conn: pipeTo(s)}} // in a pipe, a write lasts until it is read
		client, err := a.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		local := openLocal(t, s)
		const watches = 3
		for number := range int64(watches) {
			client.nc.Write(appendNumbered(nil, kindWatch, number, ""))
			if got := readKinds(t, client.nc, 1); got[0] != kindBatch {
				t.Fatalf("a watch begins with %v", got)
			}
		}
		put(t, local, Op{Key: "k", Value: []byte("1")})
		synctest.Wait() // the change of the first watch is being written
		put(t, local, Op{Key: "k", Value: []byte("2")})
		client.nc.Write(appendNumbered(nil, kindKeepAlive, 7))
		synctest.Wait() // the answer waits for the other batches
		got := readKinds(t, client.nc, 2*watches)
		want := slices.Repeat([]kind{kindBatch}, watches+1) // the second and third watch deliver both changes as one
		if want = append(want, kindReply); !slices.Equal(got[:len(want)], want) {
			t.Errorf("the client gets %v, want %v", got, want)
		}
		client.nc.Close()
		_ = s.Close()
	})
}

// readKinds returns the kinds of the next frames, at most n, until none comes.
func readKinds(t *testing.T, nc net.Conn, n int) (kinds []kind) {
	t.Helper()
	_ = nc.SetReadDeadline(time.Now().Add(time.Second))
	for range n {
		k, _, err := readFrame(nc, maxFrame, make([]byte, frameHeader))
		if err != nil {
			break
		}
		kinds = append(kinds, k)
	}
	return kinds
}
