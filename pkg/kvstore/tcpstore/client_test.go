package tcpstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/internal/keyspace"
)

func TestClientLimits(t *testing.T) {
	s, addr := startServer(t, ServerOptions{})
	c := dialClient(t, addr, ClientOptions{})
	v1 := dialClient(t, addr, ClientOptions{Protocol: ProtocolV1})
	ctx := t.Context()
	longest, large := strings.Repeat("k", maxKey-1), make([]byte, maxValue)
	if err := c.Set(ctx, longest, large); err != nil {
		t.Errorf("longest key and largest value: %v", err)
	}
	if value, err := c.Get(ctx, longest); err != nil || len(value) != maxValue {
		t.Errorf("%d bytes, %v", len(value), err)
	}
	if present, err := c.Check(ctx, make([]string, maxKeys)...); present || err != nil {
		t.Errorf("most keys: %v, %v", present, err)
	}
	many := make([]kvstore.Pair, maxRequest/maxValue+1)
	for i := range many {
		many[i].Value = large
	}
	_, getErr := c.Get(ctx, longest+"k")
	_, checkErr := c.Check(ctx, make([]string, maxKeys+1)...)
	_, popErr := v1.QueuePop(ctx, "q")
	_, lenErr := v1.QueueLen(ctx, "q")
	_, listErr := v1.ListKeys(ctx)
	for name, err := range map[string]error{
		"key":                  getErr,
		"keys":                 checkErr,
		"value":                c.Set(ctx, "k", make([]byte, maxValue+1)),
		"all together":         c.MultiSet(ctx, many...),
		"append, torch 1.x":    v1.Append(ctx, "k", nil),
		"push, torch 1.x":      v1.QueuePush(ctx, "q", nil),
		"pop, torch 1.x":       popErr,
		"length, torch 1.x":    lenErr,
		"list keys, torch 1.x": listErr,
		"barrier, torch 1.x":   v1.ServerBarrier(ctx, "b", 1),
	} {
		if !errors.Is(err, kvstore.ErrProtocol) {
			t.Errorf("%s: %v, want ErrProtocol", name, err)
		}
	}
	if stats := s.Stats(); stats.Accepted != 2 || stats.Open != 2 || len(stats.Refused) != 0 {
		t.Errorf("something was sent: %+v", stats)
	}
}

// TestClientBlockedCallsDelayNoOther makes many waits and other calls concurrently.
func TestClientBlockedCallsDelayNoOther(t *testing.T) {
	const waits = 20
	for _, p := range bothProtocols {
		s, addr := startServer(t, ServerOptions{})
		c := dialClient(t, addr, ClientOptions{Protocol: p})
		var wg sync.WaitGroup
		for i := range waits {
			wg.Go(func() {
				if value, err := c.Get(t.Context(), fmt.Sprint("late", i)); string(value) != "v" || err != nil {
					t.Errorf("Get = %q, %v", value, err)
				}
			})
		}
		for s.Stats().Open < waits {
			if sum, err := c.Add(t.Context(), "n", 1); err != nil {
				t.Fatalf("Add = %d, %v", sum, err)
			}
		}
		for i := range waits {
			if err := c.Set(t.Context(), fmt.Sprint("late", i), []byte("v")); err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
		if len(c.idle) > maxIdle || len(c.conns) != len(c.idle) {
			t.Errorf("%d idle connections of %d are kept, want %d", len(c.idle), len(c.conns), maxIdle)
		}
	}
}

// TestUnconfirmedClientHasOneConnection checks how an unconfirmed client keeps the order of its calls.
func TestUnconfirmedClientHasOneConnection(t *testing.T) {
	s, addr := startServer(t, ServerOptions{})
	c := dialClient(t, addr, ClientOptions{unconfirmed: true})
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			for j := range 50 {
				key := fmt.Sprint(i, j)
				if err := c.Set(t.Context(), key, []byte(key)); err != nil {
					t.Error(err)
				}
				if present, err := c.Check(t.Context(), key); !present || err != nil {
					t.Errorf("Check = %v, %v after Set", present, err)
				}
			}
		})
	}
	wg.Wait()
	if stats := s.Stats(); stats.Accepted != 1 {
		t.Errorf("%d connections, want 1", stats.Accepted)
	}
}

func TestUnconfirmedClientSerializesCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := pipedClient(t, ClientOptions{unconfirmed: true})
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error)
		go func() { waited <- c.Wait(ctx, "absent") }()
		synctest.Wait()
		short, cancelShort := context.WithTimeout(t.Context(), time.Minute)
		defer cancelShort()
		if _, err := c.Add(short, "n", 1); !errors.Is(err, kvstore.ErrTimeout) {
			t.Errorf("Add behind a wait = %v, want a timeout", err)
		}
		cancel()
		if err := <-waited; !errors.Is(err, context.Canceled) {
			t.Errorf("Wait = %v, want a cancellation", err)
		}
		if sum, err := c.Add(t.Context(), "n", 1); sum != 1 || err != nil {
			t.Errorf("Add = %d, %v; want 1: the one that timed out was not sent", sum, err)
		}
	})
}

// pipedClient returns a client of a store of its own, without a network. A wait there is never released. The store
// ends with the client.
func pipedClient(t *testing.T, opts ClientOptions) *Client {
	t.Helper()
	var ended sync.WaitGroup
	store := keyspace.New()
	var mu sync.Mutex
	c := newClient("piped:1", opts)
	c.open = func(context.Context) (net.Conn, error) {
		theirs, ours := net.Pipe()
		ended.Go(func() { servePipe(theirs, store, &mu) })
		return ours, nil
	}
	t.Cleanup(func() {
		c.Close()
		ended.Wait()
	})
	return c
}

func servePipe(nc net.Conn, store *keyspace.Space, mu *sync.Mutex) {
	defer nc.Close()
	d := decoder{protocol: ProtocolV2}
	var in, out []byte
	piece := make([]byte, 4096)
	for {
		n, err := nc.Read(piece)
		if err != nil {
			return
		}
		in = append(in, piece[:n]...)
		for {
			n, err := d.decode(in)
			if n == 0 || err != nil {
				break
			}
			mu.Lock()
			switch d.req.op {
			case opWait:
				if w := store.Wait(d.req.allKeys(), func() {}); w == nil {
					out = append(out, replyStopWaiting)
				}
			case opCancelWait:
				out = append(out, replyWaitCanceled)
			default:
				out, _, _ = apply(store, &d.req, out)
			}
			mu.Unlock()
			in = in[n:]
		}
		if _, err := nc.Write(out); err != nil {
			return
		}
		out = out[:0]
	}
}

func TestClientNoticesClosedConnections(t *testing.T) {
	for _, unconfirmed := range []bool{false, true} {
		s, addr := startServer(t, ServerOptions{})
		c := dialClient(t, addr, ClientOptions{unconfirmed: unconfirmed})
		if err := c.Set(t.Context(), "k", []byte("v")); err != nil {
			t.Fatal(err)
		}
		s.inLoop(func(l *loop) {
			for _, conn := range l.conns {
				if conn != nil {
					l.closeConn(conn, kvstore.ErrClosed)
				}
			}
		})
		awaitEnd(t, c)
		_, err := c.Check(t.Context(), "k")
		if unconfirmed != errors.Is(err, kvstore.ErrConnection) {
			t.Errorf("unconfirmed %v: Check = %v", unconfirmed, err)
		}
		if sum, err := c.Add(t.Context(), "n", 1); sum != 1 || err != nil {
			t.Errorf("Add = %d, %v", sum, err)
		}
	}
}

// awaitEnd waits for the end of the client's idle connection.
func awaitEnd(t *testing.T, c *Client) {
	t.Helper()
	l := c.idle[0]
	l.setDeadline(time.Now().Add(testTimeout))
	if _, err := l.answers.r.Peek(1); err == nil {
		t.Error("the server said something")
	}
	l.setDeadline(time.Time{})
}

// TestClientSendsNothingTwice breaks the connection in the middle of a call.
func TestClientSendsNothingTwice(t *testing.T) {
	s, addr := startServer(t, ServerOptions{})
	c := dialClient(t, addr, ClientOptions{})
	if err := c.Set(t.Context(), "word", []byte("word")); err != nil {
		t.Fatal(err)
	}
	_, err := c.Add(t.Context(), "word", 1) // the server closes the connection
	if !errors.Is(err, kvstore.ErrConnection) ||
		!strings.Contains(err.Error(), `"word"`) || !strings.Contains(err.Error(), addr) {
		t.Errorf("Add to a word = %v", err)
	}
	if sum, err := c.Add(t.Context(), "n", 1); sum != 1 || err != nil {
		t.Errorf("Add = %d, %v", sum, err)
	}
	if refused := s.Stats().Refused[ReasonNotNumber]; refused != 1 {
		t.Errorf("the server refused %d requests, want 1", refused)
	}
	s.Close()
	if _, err := c.Add(t.Context(), "n", 1); !errors.Is(err, kvstore.ErrConnection) {
		t.Errorf("Add without a server = %v", err)
	}
}

func TestClientClose(t *testing.T) {
	for _, unconfirmed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := pipedClient(t, ClientOptions{unconfirmed: unconfirmed})
			errs := make(chan error)
			for range 2 { // side by side, or one behind the other
				go func() { errs <- c.Wait(t.Context(), "absent") }()
			}
			synctest.Wait()
			c.Close()
			for range 2 {
				if err := <-errs; !errors.Is(err, kvstore.ErrClosed) || errors.Is(err, kvstore.ErrConnection) {
					t.Errorf("Wait = %v, want ErrClosed", err)
				}
			}
			if err := c.Set(t.Context(), "k", nil); !errors.Is(err, kvstore.ErrClosed) {
				t.Errorf("Set = %v, want ErrClosed", err)
			}
			if err := c.Close(); err != nil || len(c.conns) > 0 {
				t.Errorf("Close = %v, %d connections are left", err, len(c.conns))
			}
		})
	}
}

func TestClientCloseEndsDialing(t *testing.T) {
	c := newClient("unused:1", ClientOptions{})
	dialing := make(chan struct{})
	c.open = func(ctx context.Context) (net.Conn, error) {
		close(dialing)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	go func() {
		<-dialing
		c.Close()
	}()
	if err := c.Wait(t.Context(), "k"); !errors.Is(err, kvstore.ErrClosed) {
		t.Errorf("Wait = %v, want ErrClosed", err)
	}
}

func TestClientEndedContext(t *testing.T) {
	c := newClient("unused:1", ClientOptions{})
	defer c.Close()
	c.open = func(context.Context) (net.Conn, error) {
		t.Error("the client dials")
		return nil, errors.New("no")
	}
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	if _, err := c.Get(ctx, "k"); !errors.Is(err, kvstore.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Get = %v", err)
	}
	gaveUp := errors.New("gave up")
	ctx, cancelCause := context.WithCancelCause(t.Context())
	cancelCause(gaveUp)
	if err := c.Set(ctx, "k", nil); !errors.Is(err, gaveUp) || errors.Is(err, kvstore.ErrTimeout) {
		t.Errorf("Set = %v", err)
	}
	ctx, cancel = context.WithTimeoutCause(t.Context(), 0, gaveUp)
	defer cancel()
	err := c.Set(ctx, "k", nil)
	for _, want := range []error{kvstore.ErrTimeout, context.DeadlineExceeded, gaveUp} {
		if !errors.Is(err, want) {
			t.Errorf("Set = %v is no %v", err, want)
		}
	}
}

// A call that cannot connect in time reports that.
func TestClientCannotConnectInTime(t *testing.T) {
	c := newClient("unused:1", ClientOptions{})
	defer c.Close()
	c.open = func(ctx context.Context) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := c.Wait(ctx, "k"); !errors.Is(err, kvstore.ErrTimeout) || !errors.Is(err, kvstore.ErrConnection) {
		t.Errorf("Wait = %v, want ErrConnection and ErrTimeout", err)
	}
}

// endsContext is a connection that calls end when it has read a number of bytes.
type endsContext struct {
	net.Conn
	after int
	end   func()
}

func (c *endsContext) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.after -= n; c.after <= 0 {
		c.end()
	}
	return n, err
}

// A connection whose handshake completes as the context ends carries no call: its interrupt may come at any later time
// and would end another call's read.
func TestClientContextEndsAfterHandshake(t *testing.T) {
	for _, p := range bothProtocols {
		s := script(p)
		c := scriptedClient(ClientOptions{Protocol: p}, s)
		ctx, cancel := context.WithCancel(t.Context())
		open := c.open
		c.open = func(ctx context.Context) (net.Conn, error) {
			nc, err := open(ctx)
			return &endsContext{nc, len(handshakeTurn(p).answer), cancel}, err
		}
		if err := c.Wait(ctx, "k"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: Wait = %v, want context.Canceled", p, err)
		}
		if len(c.idle) > 0 || len(c.conns) > 0 {
			t.Errorf("%s: the connection is kept", p)
		}
		c.Close()
		if <-s.over; s.err != nil {
			t.Errorf("%s: %v", p, s.err)
		}
	}
}

// Bytes after the handshake's reply would be taken for the reply of the next call.
func TestClientHandshakeReplyTooLong(t *testing.T) {
	for _, p := range bothProtocols {
		s := script(p)
		s.turns[0].answer = append(bytes.Clone(s.turns[0].answer), 0)
		c := scriptedClient(ClientOptions{Protocol: p}, s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if _, err := c.Add(ctx, "n", 1); !errors.Is(err, kvstore.ErrProtocol) || len(c.conns) > 0 {
			t.Errorf("%s: Add = %v, want ErrProtocol; %d connections are left", p, err, len(c.conns))
		}
		cancel()
		c.Close()
		<-s.over
	}
}

// TestClientQueues uses the server's queues, keys and barrier as torch's newest clients do.
func TestClientQueues(t *testing.T) {
	_, addr := startServer(t, ServerOptions{})
	c, other := dialClient(t, addr, ClientOptions{Workers: 2}), dialClient(t, addr, ClientOptions{})
	popped := make(chan string, 2)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			value, err := other.QueuePop(t.Context(), "q")
			if err != nil {
				t.Error(err)
			}
			popped <- string(value)
		})
	}
	for _, value := range []string{"a", "b"} {
		if err := c.QueuePush(t.Context(), "q", []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	if got := <-popped + <-popped; got != "ab" && got != "ba" {
		t.Errorf("popped %q", got)
	}
	if value, ok, err := c.TryQueuePop(t.Context(), "q"); ok || err != nil {
		t.Errorf("TryQueuePop of an empty queue = %q, %v, %v", value, ok, err)
	}
	if err := c.QueuePush(t.Context(), "q", nil); err != nil {
		t.Fatal(err)
	}
	if n, err := other.QueueLen(t.Context(), "q"); n != 1 || err != nil {
		t.Errorf("QueueLen = %d, %v", n, err)
	}
	if value, ok, err := other.TryQueuePop(t.Context(), "q"); len(value) != 0 || !ok || err != nil {
		t.Errorf("TryQueuePop = %q, %v, %v", value, ok, err)
	}
	for i := range 3 {
		if err := c.Set(t.Context(), fmt.Sprint("k", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := other.ListKeys(t.Context())
	slices.Sort(keys)
	if !slices.Equal(keys, []string{"k0", "k1", "k2"}) || err != nil {
		t.Errorf("ListKeys = %q, %v", keys, err)
	}
	if n, err := c.NumKeys(t.Context()); n != 4 || err != nil { // counts init/
		t.Errorf("NumKeys = %d, %v", n, err)
	}
	wg.Go(func() {
		if err := other.ServerBarrier(t.Context(), "b", 2); err != nil {
			t.Error(err)
		}
	})
	if err := c.ServerBarrier(t.Context(), "b", 2); err != nil {
		t.Error(err)
	}
	wg.Wait()
}
