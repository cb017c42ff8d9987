package tcpstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

func TestMaxConns(t *testing.T) {
	s, addr := startServer(t, ServerOptions{MaxConns: 2})
	one, two := dial(t, addr, ProtocolV2), dial(t, addr, ProtocolV1)
	one.ping()
	two.ping()
	dial(t, addr, protocolUnknown).expectClosed()
	one.ping()
	two.ping()
	stats := s.Stats()
	if stats.Open != 2 || stats.Accepted != 3 || stats.Refused[ReasonMaxConns] != 1 {
		t.Errorf("stats: %+v", stats)
	}
}

func TestShutdown(t *testing.T) {
	s, addr := startServer(t, ServerOptions{})
	silent, idle := dial(t, addr, protocolUnknown), dial(t, addr, ProtocolV2)
	partial, waiting := dial(t, addr, ProtocolV2), dial(t, addr, ProtocolV2)
	request := encode(ProtocolV2, opAdd, "n", 1)
	idle.ping()
	for _, c := range []*rawClient{partial, waiting} {
		c.ping()
	}
	partial.write(append(encode(ProtocolV2, opCheck, 0), request[:5]...))
	partial.expect(replyReady) // so the partial request has been read too
	waiting.write(append(encode(ProtocolV2, opCheck, 0), encode(ProtocolV2, opWait, 1, "n")...))
	waiting.expect(replyReady)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown = %v, want its context's end", err)
	}
	silent.expectClosed()
	idle.expectClosed()
	waiting.expectClosed()
	if open := s.Stats().Open; open != 1 {
		t.Fatalf("%d connections open, want the one with part of a request", open)
	}
	partial.write(request[5:])
	partial.expect(1)
	partial.expectClosed()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown = %v", err)
	}
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("the port still listens")
	}
}

// Shutdown answers the requests that arrived before it, even if the loop has not read them yet.
func TestStopAnswersArrivedRequests(t *testing.T) {
	l := stepLoop(t, ServerOptions{})
	c := l.connect(ProtocolV2)
	c.ping()
	waiting := l.connect(ProtocolV2)
	waiting.send(opWait, 1, "k")
	requests := slices.Concat(encode(ProtocolV2, opSet, "k", make([]byte, 100_000)), encode(ProtocolV2, opAdd, "n", 1))
	// More than one read takes.
	if n, err := unix.Write(c.nc.(*steppedWire).fd, requests); err != nil || n < len(requests) {
		t.Fatalf("wrote %d bytes, %v", n, err)
	}
	l.stop(true)
	c.expect(1)
	c.expectClosed()
	waiting.expectClosed()
	if l.open != 0 {
		t.Errorf("%d connections are open", l.open)
	}
}

func TestClose(t *testing.T) {
	s, addr := startServer(t, ServerOptions{})
	partial, waiting := dial(t, addr, ProtocolV2), dial(t, addr, ProtocolV1)
	partial.send(opSet, "k", 100)
	waiting.send(opWait, 1, "absent")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	partial.expectClosed()
	waiting.expectClosed()
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("the port still listens")
	}
	s.Close() // again
	l := listen(t)
	if err := s.Serve(l); !errors.Is(err, kvstore.ErrClosed) {
		t.Errorf("Serve after Close = %v, want ErrClosed", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve after Close left its listener open: %v", err)
	}
}

// Reset forgets the clients, their keys and their waits, and the server accepts new ones.
func TestReset(t *testing.T) {
	s, addr := startServer(t, ServerOptions{})
	partial, waiting := dial(t, addr, ProtocolV2), dial(t, addr, ProtocolV1)
	partial.send(opSet, "k", "v")
	partial.ping()
	partial.write(encode(ProtocolV2, opSet, "half", "v")[:8])
	waiting.send(opWait, 1, "k2")
	silent := dial(t, addr, protocolUnknown)
	for deadline := time.Now().Add(testTimeout); s.Stats().Accepted < 3; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("not all clients are served")
		}
	}
	if err := s.Reset(); err != nil {
		t.Fatal(err)
	}
	if stats := s.Stats(); stats.Open != 1 || stats.Keys != 0 || stats.Memory != 0 {
		t.Errorf("after Reset, the server has %+v", stats)
	}
	partial.expectClosed()
	waiting.expectClosed()
	next := dial(t, addr, ProtocolV2)
	next.send(opSet, "k2", "v")
	next.send(opNumKeys)
	next.expect(1)
	silent.p = ProtocolV2 // it only now shows its protocol
	silent.write(handshake)
	silent.send(opNumKeys)
	silent.expect(1)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Reset(); !errors.Is(err, kvstore.ErrClosed) {
		t.Errorf("Reset after Close = %v, want ErrClosed", err)
	}
	if err := NewServer(ServerOptions{}).Reset(); err != nil {
		t.Errorf("Reset before Serve = %v", err)
	}
}

// scriptedListener accepts what its steps say.
type scriptedListener struct {
	net.Listener
	steps []error
}

func (l *scriptedListener) Accept() (net.Conn, error) {
	if len(l.steps) == 0 {
		return l.Listener.Accept()
	}
	err := l.steps[0]
	l.steps = l.steps[1:]
	return nil, &net.OpError{Op: "accept", Err: err}
}

func TestServeRetriesAccept(t *testing.T) {
	l := listen(t)
	broken := errors.New("broken")
	s := NewServer(ServerOptions{})
	defer s.Close()
	err := s.Serve(&scriptedListener{l, []error{syscall.EMFILE, broken, net.ErrClosed}})
	if !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve = %v, want the first error that does not pass", err)
	}
}

// TestRandomClients lets many clients connect, send requests, and disconnect at random positions.
func TestRandomClients(t *testing.T) {
	const clients = 1000
	s, addr := startServer(t, ServerOptions{})
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 7))
			p := Protocol(1 + random.IntN(2))
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			var stream []byte
			if p == ProtocolV2 {
				stream = append(stream, handshake...)
			}
			for range random.IntN(20) {
				key := fmt.Sprint("k", random.IntN(5))
				stream = append(stream, [][]byte{
					encode(p, opSet, key, "1"),
					encode(p, opAdd, key, 1),
					encode(p, opGet, key),
					encode(p, opDelete, key),
					encode(p, opWait, 2, key, "never"),
					encode(p, opCheck, 1, key),
					encode(p, opCompareSet, key, "1", "2"),
				}[random.IntN(7)]...)
			}
			stream = stream[:random.IntN(len(stream)+1)]
			for len(stream) > 0 {
				n := 1 + random.IntN(len(stream))
				if _, err := nc.Write(stream[:n]); err != nil {
					t.Error(err)
					return
				}
				stream = stream[n:]
			}
			if random.IntN(2) == 0 {
				nc.SetReadDeadline(time.Now().Add(time.Millisecond))
				nc.Read(make([]byte, 100))
			}
		})
	}
	wg.Wait()
	c := dial(t, addr, ProtocolV2)
	c.ping()
	c.close()
	// All clients are gone, so nothing delays a graceful end: no wait and no partial request.
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	stats := s.Stats()
	if stats.Open != 0 || len(stats.Refused) != 0 {
		t.Errorf("stats: %+v", stats)
	}
	l := s.loop // its goroutine has ended
	if l.store.Awaited() != 0 || l.held != 0 || l.stalls.Len() != 0 || len(l.released) != 0 {
		t.Errorf("waits for %d keys, %d bytes, %d partial requests and %d released waits are left",
			l.store.Awaited(), l.held, l.stalls.Len(), len(l.released))
	}
}
