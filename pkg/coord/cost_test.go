package coord

import (
	"context"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// phase is a point at which a client stops.
type phase struct {
	name  string
	limit int64 // what the budget counts for the connection
	open  func(ctx context.Context, addr string) (io.Closer, error)
}

var phaseSecret = []byte("a secret of some length")

// phases returns the points at which a client can stop, the last one after it has got a session. The client's side
// costs only its socket.
func phases() []phase {
	type open = func(ctx context.Context, addr string) (io.Closer, error)
	raw := func(first []byte) open {
		return func(ctx context.Context, addr string) (io.Closer, error) {
			nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			if err == nil {
				_, err = nc.Write(first)
			}
			return nc, err
		}
	}
	secure := func(do func(*attempt, net.Conn) error) open {
		return func(ctx context.Context, addr string) (io.Closer, error) {
			a := &attempt{opts: &DialOptions{Addr: addr, RunID: "run", Secret: phaseSecret, TTL: time.Hour}}
			nc, err := a.exchange(ctx, func(nc net.Conn) error { return do(a, nc) })
			if err != nil {
				return nil, err
			}
			defer nc.Close()
			return nc.(*secureConn).nc.(*net.TCPConn).File() // keeps the socket open without TLS
		}
	}
	return []phase{
		{"silent", pendingSize, raw(nil)},
		{"preamble", pendingSize, raw(appendPreamble(nil))},
		{"in a record", pendingSize, raw(append(appendPreamble(nil), record(handshakeBytes-recordHeader, 1000)...))},
		{"after TLS", pendingSize, secure(func(*attempt, net.Conn) error { return nil })},
		{"challenge", pendingSize, secure(func(a *attempt, nc net.Conn) error { return a.challenge(nc) })},
		{"session", sessionSize, secure(func(a *attempt, nc net.Conn) error {
			_, err := a.handshake(nc)
			return err
		})},
	}
}

// TestCostOfConnections measures the cost of a connection in each phase for the store's process, by the memory that
// Go's runtime holds. The budget must not count less.
func TestCostOfConnections(t *testing.T) {
	for _, at := range phases() {
		t.Run(at.name, func(t *testing.T) {
			s, addr := startServer(t, ServerOptions{Secret: phaseSecret, HandshakeTimeout: time.Minute})
			first, err := at.open(t.Context(), addr)
			if err != nil {
				t.Fatal(err)
			}
			first.Close()
			const n = 200
			before := memory()
			all := openMany(t, s, at, addr, n)
			each := (memory() - before) / n
			t.Logf("%d bytes", each)
			limit := at.limit
			if testenv.Race {
				limit *= 2
			}
			if each > limit {
				t.Errorf("a connection costs %d bytes, the budget counts %d", each, at.limit)
			}
			for _, c := range all {
				c.Close()
			}
		})
	}
}

// openMany opens n connections that stay in a phase, and waits until the server has accepted them.
func openMany(t *testing.T, s *Server, at phase, addr string, n int) (all []io.Closer) {
	t.Helper()
	before := s.Stats().Accepted
	for range n {
		c, err := at.open(t.Context(), addr)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for s.Stats().Accepted < before+uint64(n) {
		runtime.Gosched()
	}
	return all
}

// TestCrowdInEachPhase connects more clients in each phase than the store allows. The oldest lose their places. An
// agent joins and works as if it were alone.
func TestCrowdInEachPhase(t *testing.T) {
	all := phases()
	for _, at := range all[:len(all)-1] {
		t.Run(at.name, func(t *testing.T) {
			s, addr := startServer(t, ServerOptions{
				Secret: phaseSecret, MaxMemory: 1 << 20, HandshakeTimeout: time.Minute,
			})
			agent := dial(t, DialOptions{Addr: addr, Secret: phaseSecret})
			crowd := openMany(t, s, at, addr, minPending+44)
			if stats := s.Stats(); stats.Pending != minPending || stats.Pending != s.Limits().Pending {
				t.Errorf("stats %+v, want %d pending connections", stats, minPending)
			}
			began := time.Now()
			put(t, agent, Op{Key: "k", Owned: true})
			put(t, dial(t, DialOptions{Addr: addr, Secret: phaseSecret}), Op{Key: "l", Owned: true})
			if took := time.Since(began); took > 20*time.Second { // far less than the time that the crowd may take
				t.Errorf("an agent joined and worked in %v", took)
			}
			for _, c := range crowd {
				c.Close()
			}
		})
	}
}

// memory returns the bytes of the heap and of stacks in use.
func memory() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
