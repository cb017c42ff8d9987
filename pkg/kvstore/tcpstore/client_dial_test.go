package tcpstore

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// dialClient returns a client that is closed when the test ends.
func dialClient(t testing.TB, addr string, opts ClientOptions) *Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c, err := Dial(ctx, addr, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestDialBadAddresses(t *testing.T) {
	bad := []string{"", "localhost", ":29500", "host:", "host:0", "host:65536", "host:port", "::1:29500", "a:b:c"}
	for _, addr := range bad {
		c, err := Dial(t.Context(), addr, ClientOptions{})
		if err == nil || errors.Is(err, kvstore.ErrConnection) || !strings.Contains(err.Error(), addr) {
			t.Errorf("Dial(%q) = %v, %v; want an error at once that names it", addr, c, err)
		}
	}
}

// refusedClient returns a client whose first attempts to connect are refused.
func refusedClient(opts ClientOptions, attempts int, s *scriptedServer) (*Client, *[]time.Time) {
	c := scriptedClient(opts, s)
	open := c.open
	times := new([]time.Time)
	c.open = func(ctx context.Context) (net.Conn, error) {
		*times = append(*times, time.Now())
		if len(*times) < attempts {
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}
		return open(ctx)
	}
	return c, times
}

func TestDialRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const attempts = 15
		s := script(ProtocolV2)
		refused, times := refusedClient(ClientOptions{}, attempts, s)
		c, err := start(t.Context(), refused)
		if err != nil || len(*times) != attempts {
			t.Fatalf("%v after %d attempts, want success after %d", err, len(*times), attempts)
		}
		c.Close()
		if <-s.over; s.err != nil {
			t.Error(s.err)
		}
		want := firstPause
		for i := 1; i < attempts; i++ {
			pause := (*times)[i].Sub((*times)[i-1])
			if pause < want/2 || pause > want*3/2 {
				t.Errorf("pause %d was %v, want about %v", i, pause, want)
			}
			want = min(2*want, longestPause)
		}
	})
}

func TestDialEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused, times := refusedClient(ClientOptions{}, 1000, nil)
		refuse := refused.open
		refused.open = func(ctx context.Context) (net.Conn, error) {
			if len(*times) == 3 { // this attempt is cut short, so the error shows the one before
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return refuse(ctx)
		}
		ctx, cancel := context.WithTimeout(t.Context(), attemptTimeout)
		defer cancel()
		_, err := start(ctx, refused)
		for _, want := range []error{kvstore.ErrConnection, kvstore.ErrTimeout, context.DeadlineExceeded} {
			if !errors.Is(err, want) {
				t.Errorf("%v is no %v", err, want)
			}
		}
		for _, want := range []string{"scripted:1", "4 times", "refused"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not say %q", err, want)
			}
		}

		gaveUp := errors.New("gave up")
		ctx, cancelCause := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancelCause(gaveUp) })
		// A server that accepts and sends nothing: each attempt times out, but Dial does not.
		silent := scriptedClient(ClientOptions{})
		silent.open = func(context.Context) (net.Conn, error) {
			s := script(ProtocolV2)
			s.limit, s.stall = 0, true
			theirs, ours := net.Pipe()
			go s.serve(theirs)
			return ours, nil
		}
		begin := time.Now()
		_, err = start(ctx, silent)
		if !errors.Is(err, kvstore.ErrConnection) || !errors.Is(err, gaveUp) || errors.Is(err, kvstore.ErrTimeout) {
			t.Errorf("%v, want a connection error that says %q", err, gaveUp)
		}
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("took %v, want a minute", took)
		}
	})
}

func TestDialRejectsOtherServers(t *testing.T) {
	s := script(ProtocolV2)
	s.turns[0].answer = []byte("HTTP/1.1 400 Bad Request\r\n\r\n")
	_, err := start(t.Context(), scriptedClient(ClientOptions{}, s))
	if !errors.Is(err, kvstore.ErrProtocol) || errors.Is(err, kvstore.ErrConnection) {
		t.Errorf("%v, want ErrProtocol at once", err)
	}
	<-s.over
}

func TestDialWaitsForWorkers(t *testing.T) {
	for _, unconfirmed := range []bool{false, true} {
		for _, p := range bothProtocols {
			_, addr := startServer(t, ServerOptions{})
			opts := ClientOptions{Protocol: p, Workers: 3, unconfirmed: unconfirmed}
			host := opts
			host.Host = true

			var wg sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			wg.Go(func() {
				defer cancel() // as soon as the host is counted
				watcher := dial(t, addr, ProtocolV2)
				watcher.send(opWait, 1, initKey)
				watcher.expect(replyStopWaiting)
			})
			_, err := Dial(ctx, addr, host)
			wg.Wait()
			if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "3 workers") {
				t.Errorf("host alone: %v, want the end of its context, and what it waited for", err)
			}

			wg.Go(func() {
				c := dialClient(t, addr, host)
				if n, err := c.NumKeys(t.Context()); n != 1 || err != nil {
					t.Errorf("NumKeys = %d, %v; want 1, the workers' count", n, err)
				}
				if present, err := c.Check(t.Context(), "init/"); present || err != nil {
					t.Errorf("a user's key init/ is %v, %v", present, err)
				}
			})
			dialClient(t, addr, opts) // the host that gave up is counted too
			wg.Wait()
		}
	}
}

// LocalAddr is that of a connection that the server has answered, and it outlives the connection.
func TestClientLocalAddr(t *testing.T) {
	s, addr := startServer(t, ServerOptions{})
	unconnected := newClient(addr, ClientOptions{})
	defer unconnected.Close()
	if got := unconnected.LocalAddr(); got.IsValid() {
		t.Errorf("before any connection: %v", got)
	}
	c := dialClient(t, addr, ClientOptions{})
	c.mu.Lock()
	want := c.idle[0].nc.LocalAddr().String()
	c.mu.Unlock()
	if got := c.LocalAddr(); got.String() != want || !got.Addr().IsLoopback() {
		t.Errorf("LocalAddr = %v, want %s", got, want)
	}
	s.Close()
	if err := c.Set(t.Context(), "k", nil); !errors.Is(err, kvstore.ErrConnection) {
		t.Errorf("Set = %v", err)
	}
	if got := c.LocalAddr().String(); got != want {
		t.Errorf("LocalAddr after the server's end = %s, want %s", got, want)
	}
	piped := pipedClient(t, ClientOptions{})
	if _, err := piped.Add(t.Context(), "n", 1); err != nil || piped.LocalAddr().IsValid() {
		t.Errorf("without TCP: %v, %v", piped.LocalAddr(), err)
	}
}
