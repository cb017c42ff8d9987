package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// busy starts a server and a call whose handler runs until release. If endsWithContext is true, the handler also ends
// with its context.
func busy(t *testing.T, endsWithContext bool) (s *Server, answered <-chan error, release func()) {
	t.Helper()
	running, released := make(chan struct{}), make(chan struct{})
	s, addr := serve(t, ServerOptions{Handle: func(ctx context.Context, _ []byte) [][]byte {
		close(running)
		gone := ctx.Done()
		if !endsWithContext {
			gone = nil
		}
		select {
		case <-released:
		case <-gone:
		}
		return nil
	}})
	done := callAside(t, newPool(t, ClientOptions{}), addr)
	<-running
	return s, done, func() { close(released) }
}

func TestShutdownWaitsForHandlers(t *testing.T) {
	s, answered, release := busy(t, true)
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(t.Context()) }()
	select {
	case err := <-down:
		t.Fatalf("shutdown did not wait: %v", err)
	case err := <-answered:
		t.Fatalf("the call ended: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	release()
	if err := <-answered; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	if err := <-down; err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

// TestOnceAtMost makes calls while their server ends and returns, gracefully and not. No call runs twice.
func TestOnceAtMost(t *testing.T) {
	const callers, lives = 8, 12
	var mu sync.Mutex
	carriedOut := map[string]int{}
	handle := func(_ context.Context, request []byte) [][]byte {
		mu.Lock()
		defer mu.Unlock()
		carriedOut[string(request)]++
		return [][]byte{request}
	}
	ln := listen(t)
	addr := ln.Addr().String()
	p := newPool(t, ClientOptions{})
	over := make(chan struct{})
	answered := make(chan string, 1)
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for call := 0; ; call++ {
				request := fmt.Sprintf("%d/%d", caller, call)
				_, err := p.Call(t.Context(), addr, []byte(request))
				if err != nil && !errors.Is(err, ErrConnection) {
					t.Errorf("%s: %v", request, err)
				}
				if err != nil {
					request = ""
				}
				select {
				case answered <- request:
				case <-over:
					return
				}
			}
		})
	}
	var good []string
	for life := range lives {
		s := Serve(ln, ServerOptions{Handle: handle})
		for want := len(good) + 50; len(good) < want; {
			if request := <-answered; request != "" {
				good = append(good, request)
			}
		}
		if life%2 == 0 {
			s.Close()
		} else if err := s.Shutdown(within(t, testTimeout)); err != nil {
			t.Error(err)
		}
		var err error
		if ln, err = net.Listen("tcp", addr); err != nil {
			t.Errorf("the port is in use: %v", err)
			break
		}
	}
	close(over)
	ln.Close()
	wg.Wait()
	for _, request := range good {
		if carriedOut[request] == 0 {
			t.Errorf("%s was answered but did not run", request)
		}
	}
	for request, times := range carriedOut {
		if times != 1 {
			t.Errorf("%s ran %d times", request, times)
		}
	}
}

func TestShutdownEndsWithItsContext(t *testing.T) {
	for _, tc := range []struct {
		name            string
		endsWithContext bool
	}{{"obedient handler", true}, {"deaf handler", false}} {
		t.Run(tc.name, func(t *testing.T) {
			s, answered, release := busy(t, tc.endsWithContext)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("shutdown: %v", err)
			}
			if err := <-answered; !errors.Is(err, ErrConnection) {
				t.Errorf("the call under way: %v", err)
			}
			release()
		})
	}
}

func TestCloseWaitsForNobody(t *testing.T) {
	s, answered, release := busy(t, false)
	s.Close()
	if err := <-answered; !errors.Is(err, ErrConnection) {
		t.Errorf("the call under way: %v", err)
	}
	release()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("shutdown after close: %v", err)
	}
}
