package kvstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestMaxConns(t *testing.T) {
	s, addr := startServer(t, ServerOptions{MaxConns: 2})
	one, two := dial(t, addr, TodaysGeneration), dial(t, addr, FirstGeneration)
	one.ping()
	two.ping()
	dial(t, addr, unknownGeneration).expectClosed()
	one.ping()
	two.ping()
	stats := s.Stats()
	if stats.Open != 2 || stats.Accepted != 3 || stats.Refused[ReasonMaxConns] != 1 {
		t.Errorf("stats: %+v", stats)
	}
}

func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := pipeServer(t, ServerOptions{})
		silent, idle := pipe(t, s, unknownGeneration), pipe(t, s, TodaysGeneration)
		half, waiting := pipe(t, s, TodaysGeneration), pipe(t, s, TodaysGeneration)
		idle.ping()
		request := encode(TodaysGeneration, opAdd, "n", 1)
		half.write(request[:5])
		waiting.send(opWait, 1, "n")
		synctest.Wait()

		done := make(chan error, 1)
		go func() { done <- s.Shutdown(t.Context()) }()
		silent.expectClosed()
		idle.expectClosed()
		synctest.Wait()
		if len(done) != 0 || s.Stats().Open != 2 {
			t.Fatalf("Shutdown returned: %v; %d connections open", len(done) != 0, s.Stats().Open)
		}
		half.write(request[5:])
		half.expect(1)
		half.expectClosed()
		waiting.expect(answerStopWaiting)
		waiting.expectClosed()
		if err := <-done; err != nil {
			t.Errorf("Shutdown = %v", err)
		}
		late := pipe(t, s, unknownGeneration)
		late.expectClosed()
	})
}

func TestShutdownEndsWithItsContext(t *testing.T) {
	s, addr := startServer(t, ServerOptions{})
	c := dial(t, addr, TodaysGeneration)
	c.write(append(encode(TodaysGeneration, opCheck, 0), encode(TodaysGeneration, opWait, 1, "k")...))
	c.expect(answerReady)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown = %v, want a timeout", err)
	}
	if open := s.Stats().Open; open != 1 {
		t.Errorf("%d connections open, want the one that waits", open)
	}
	s.Close()
	c.expectClosed()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown after Close = %v", err)
	}
}

func TestClose(t *testing.T) {
	s, addr := startServer(t, ServerOptions{})
	half, waiting := dial(t, addr, TodaysGeneration), dial(t, addr, FirstGeneration)
	half.send(opSet, "k", 100)
	waiting.send(opWait, 1, "absent")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	half.expectClosed()
	waiting.expectClosed()
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("the port still listens")
	}
	s.Close() // again
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(l); !errors.Is(err, ErrClosed) {
		t.Errorf("Serve after Close = %v, want ErrClosed", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve after Close left its listener open: %v", err)
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

func TestServeOutlivesPassingErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	s := NewServer(ServerOptions{})
	defer s.Close()
	err = s.Serve(&scriptedListener{l, []error{syscall.EMFILE, broken, net.ErrClosed}})
	if !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve = %v, want the first error that does not pass", err)
	}
}

// TestRandomClients lets many clients come, work and vanish at random places of their requests.
func TestRandomClients(t *testing.T) {
	const clients = 200
	s, addr := startServer(t, ServerOptions{})
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 7))
			g := Generation(1 + random.IntN(2))
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			var stream []byte
			if g == TodaysGeneration {
				stream = append(stream, handshake...)
			}
			for range random.IntN(20) {
				key := fmt.Sprint("k", random.IntN(5))
				stream = append(stream, [][]byte{
					encode(g, opSet, key, "1"),
					encode(g, opAdd, key, 1),
					encode(g, opGet, key),
					encode(g, opDelete, key),
					encode(g, opWait, 2, key, "never"),
					encode(g, opCheck, 1, key),
					encode(g, opCompareSet, key, "1", "2"),
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
	c := dial(t, addr, TodaysGeneration)
	c.ping()
	c.close()
	// All clients are gone, so nothing is in the way of a graceful end: no wait and no half request.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	stats := s.Stats()
	if stats.Open != 0 || len(stats.Refused) != 0 {
		t.Errorf("stats: %+v", stats)
	}
	if n := len(s.store.waiting); n != 0 {
		t.Errorf("waits for %d keys are left", n)
	}
}
