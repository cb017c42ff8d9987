package tcpstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

var bothProtocols = []Protocol{ProtocolV1, ProtocolV2}

func TestClientConversations(t *testing.T) {
	for _, p := range bothProtocols {
		for _, conv := range conversations(p) {
			t.Run(fmt.Sprint(p, "/", conv.name), func(t *testing.T) {
				s := script(p, append(conv.turns, conv.turns...)...)
				c := scriptedClient(ClientOptions{Protocol: p}, s)
				for range 2 {
					if result, err := conv.do(t.Context(), c); err != nil || show(result) != conv.want {
						t.Errorf("%q, %v; want %q", show(result), err, conv.want)
					}
				}
				c.Close()
				if <-s.over; s.err != nil {
					t.Error(s.err)
				}
			})
		}
	}
}

// TestClientCutAnywhere ends the connection after each possible number of reply bytes.
func TestClientCutAnywhere(t *testing.T) {
	for _, p := range bothProtocols {
		for _, conv := range conversations(p) {
			t.Run(fmt.Sprint(p, "/", conv.name), func(t *testing.T) {
				for cut := range answered(p, conv) {
					s := script(p, conv.turns...)
					s.limit = cut
					c := scriptedClient(ClientOptions{Protocol: p}, s)
					_, err := conv.do(t.Context(), c)
					if !errors.Is(err, kvstore.ErrConnection) || errors.Is(err, kvstore.ErrProtocol) {
						t.Errorf("cut after %d bytes: %v, want ErrConnection", cut, err)
					}
					if len(c.conns) > 0 || len(c.idle) > 0 {
						t.Errorf("cut after %d bytes: the connection is kept", cut)
					}
					if <-s.over; s.err != nil {
						t.Error(s.err)
					}
				}
			})
		}
	}
}

// answered counts the bytes of replies to the handshake and the call.
func answered(p Protocol, conv conversation) int {
	n := len(handshakeTurn(p).answer)
	for _, turn := range conv.turns {
		n += len(turn.answer)
	}
	return n
}

// TestClientStalledAnywhere stops the server after each possible number of reply bytes. The context of the call ends
// it.
func TestClientStalledAnywhere(t *testing.T) {
	gaveUp := errors.New("gave up")
	for _, p := range bothProtocols {
		for _, conv := range conversations(p) {
			t.Run(fmt.Sprint(p, "/", conv.name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					for cut := range answered(p, conv) {
						for _, canceled := range []bool{false, true} {
							s := script(p, conv.turns...)
							s.limit, s.stall = cut, true
							c := scriptedClient(ClientOptions{Protocol: p}, s)
							ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
							want := kvstore.ErrTimeout
							if canceled {
								ctx, want = context.WithoutCancel(ctx), gaveUp
								cancelCause := context.CancelCauseFunc(nil)
								ctx, cancelCause = context.WithCancelCause(ctx)
								time.AfterFunc(time.Minute, func() { cancelCause(gaveUp) })
							}
							begin := time.Now()
							_, err := conv.do(ctx, c)
							took := time.Since(begin)
							cancel()
							if !errors.Is(err, want) || errors.Is(err, kvstore.ErrTimeout) == canceled {
								t.Errorf("stall after %d bytes: %v, want %v", cut, err, want)
							}
							// One more second is for a server that does not confirm the cancellation of a wait.
							if took != time.Minute && took != time.Minute+cancelTimeout {
								t.Errorf("stall after %d bytes: took %v", cut, took)
							}
							<-s.over
							if len(c.conns) > 0 {
								t.Errorf("stall after %d bytes: the connection is kept", cut)
							}
						}
					}
				})
			})
		}
	}
}

// TestClientCancelsWaits ends waits by their context, which the server's release may cross.
func TestClientCancelsWaits(t *testing.T) {
	const p = ProtocolV2
	cancels := func(request, answer []byte) []turn {
		return []turn{{request, nil}, {encode(p, opCancelWait), answer}}
	}
	waits := encode(p, opWait, 2, "/a", "/b")
	getWaits := encode(p, opWait, 1, "/a")
	barrier := encode(p, opBarrier, "/a", 2)
	passBarrier := func(ctx context.Context, c *Client) (any, error) { return nil, c.ServerBarrier(ctx, "a", 2) }
	// asks is the check for the missing keys that follows a cancellation.
	asks := func(a, b byte) turn {
		return turn{append(encode(p, opCheck, 1, "/a"), encode(p, opCheck, 1, "/b")...), replyOf(a, b)}
	}
	canceled, crossed := replyOf(replyWaitCanceled), replyOf(replyStopWaiting, replyWaitCanceled)
	tests := []struct {
		name    string
		do      storeCall
		turns   []turn
		names   string // in the error
		succeed bool
		closed  bool
		took    time.Duration // after the deadline
	}{
		{name: "wait", do: wait("a", "b"), turns: append(cancels(waits, canceled), asks(1, 1)), names: `key "a", "b"`},
		{name: "wait for b", do: wait("a", "b"), turns: append(cancels(waits, canceled), asks(0, 1)), names: `key "b" at`},
		{name: "set late", do: wait("a", "b"), turns: append(cancels(waits, canceled), asks(0, 0)), names: `key "a", "b"`},
		{
			name: "does not say", do: wait("a", "b"), turns: append(cancels(waits, canceled), turn{asks(0, 0).request, nil}),
			closed: true, took: cancelTimeout, names: `key "a", "b"`,
		},
		{name: "wait, crossed", do: wait("a", "b"), turns: cancels(waits, crossed), succeed: true},
		{name: "get", do: get("a"), turns: cancels(getWaits, canceled), names: `key "a" at`},
		{name: "get, crossed", do: get("a"), turns: cancels(getWaits, crossed)},
		{name: "barrier", do: passBarrier, turns: cancels(barrier, canceled)},
		{name: "barrier, crossed", do: passBarrier, turns: cancels(barrier, crossed), succeed: true},
		{name: "not confirmed", do: wait("a", "b"), turns: cancels(waits, nil), closed: true, took: cancelTimeout},
		{name: "released only", do: get("a"), turns: cancels(getWaits, crossed[:1]), closed: true, took: cancelTimeout},
		{name: "released twice", do: get("a"), turns: cancels(getWaits, []byte{0, 0}), closed: true},
		{name: "garbage", do: wait("a", "b"), turns: cancels(waits, []byte{0x80}), closed: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				next := turn{encode(p, opAdd, "/n", 1), replyOf(1)}
				servers := []*scriptedServer{script(p, tt.turns...), script(p, next)}
				if !tt.closed {
					servers = []*scriptedServer{script(p, append(tt.turns, next)...)}
				}
				c := scriptedClient(ClientOptions{}, servers...)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				begin := time.Now()
				_, err := tt.do(ctx, c)
				switch {
				case tt.succeed && err != nil:
					t.Errorf("%v, want nil: the keys were there", err)
				case !tt.succeed && (!errors.Is(err, kvstore.ErrTimeout) || !strings.Contains(err.Error(), tt.names)):
					t.Errorf("%v, want a timeout that names its keys", err)
				}
				if took := time.Since(begin); took != time.Minute+tt.took {
					t.Errorf("took %v", took)
				}
				<-time.After(time.Hour) // no deadline is left over
				if sum, err := c.Add(t.Context(), "n", 1); sum != 1 || err != nil {
					t.Errorf("the next call: %d, %v", sum, err)
				}
				c.Close()
				for _, s := range servers {
					if <-s.over; s.err != nil {
						t.Error(s.err)
					}
				}
			})
		})
	}
}

// TestClientRejectsBadReplies sends replies that no server sends.
func TestClientRejectsBadReplies(t *testing.T) {
	const p = ProtocolV2
	get := []turn{{encode(p, opWait, 1, "/k"), replyOf(replyStopWaiting)}, {encode(p, opGet, "/k"), nil}}
	tests := []struct {
		call     string
		badReply []byte // replaces the last reply
	}{
		{"set", replyOf(byte(1), byte(2), byte(3), byte(4))},
		{"get", replyOf(-1)},
		{"get", replyOf(maxReply + 1)},
		{"get", replyOf(-1 << 63)},
		{"check", replyOf(byte(2))},
		{"wait", replyOf(byte(1))},
		{"num keys", replyOf(-1)},
		{"delete", replyOf(2)},
		{"delete", replyOf(-1)},
		{"multi get", replyOf("1", -1)},
		{"multi get", replyOf("1", maxReply)}, // too large in total
		{"try pop", replyOf(-1)},
		{"try pop", replyOf(1, maxReply+1)},
		{"queue length", replyOf(-1)},
		{"list keys", replyOf(-1)},
		{"list keys", replyOf(maxListed + 1)},
		{"list keys", replyOf(1, -1)},
		{"barrier", replyOf(byte(1))},
	}
	talks := map[string]conversation{}
	for _, conv := range conversations(p) {
		talks[conv.name] = conv
	}
	talks["get"] = conversation{do: talks["get"].do, turns: get}
	for _, tt := range tests {
		conv := talks[tt.call]
		turns := append([]turn{}, conv.turns...)
		turns[len(turns)-1].answer = tt.badReply
		s := script(p, turns...)
		c := scriptedClient(ClientOptions{}, s)
		result, err := conv.do(t.Context(), c)
		if !errors.Is(err, kvstore.ErrProtocol) || errors.Is(err, kvstore.ErrConnection) {
			t.Errorf("%s answered by %x: %q, %v; want ErrProtocol", tt.call, tt.badReply, show(result), err)
		}
		if <-s.over; s.err != nil || len(c.conns) > 0 {
			t.Errorf("%s answered by %x: %v, %d connections are kept", tt.call, tt.badReply, s.err, len(c.conns))
		}
	}
}

// Bytes after a reply would be taken for the next one, so the client does not reuse the connection.
func TestClientDropsConnectionWithExtraBytes(t *testing.T) {
	const p = ProtocolV2
	one := script(p, turn{encode(p, opAdd, "/n", 1), replyOf(1, byte(7))})
	two := script(p, turn{encode(p, opAdd, "/n", 1), replyOf(2)})
	c := scriptedClient(ClientOptions{}, one, two)
	for want := range int64(2) {
		if sum, err := c.Add(t.Context(), "n", 1); sum != want+1 || err != nil {
			t.Errorf("Add = %d, %v; want %d", sum, err, want+1)
		}
	}
	c.Close()
	for _, s := range []*scriptedServer{one, two} {
		if <-s.over; s.err != nil {
			t.Error(s.err)
		}
	}
}

// endingConn ends the call's context with the last byte of the second reply.
type endingConn struct {
	net.Conn
	reads int
	end   func()
}

func (c *endingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.reads++; c.reads == 2 {
		c.end()
	}
	return n, err
}

// A context that ends with the last byte of a call interrupts neither this call nor the next one.
func TestClientContextEndsWithTheAnswer(t *testing.T) {
	for _, p := range bothProtocols {
		synctest.Test(t, func(t *testing.T) {
			add := turn{encode(p, opAdd, "/n", 1), replyOf(1)}
			c := scriptedClient(ClientOptions{Protocol: p}, script(p, add, add), script(p, add))
			defer c.Close()
			ctx, cancel := context.WithCancel(t.Context())
			open := c.open
			c.open = func(ctx context.Context) (net.Conn, error) {
				nc, err := open(ctx)
				return &endingConn{Conn: nc, end: cancel}, err
			}
			for _, ctx := range []context.Context{ctx, t.Context()} {
				if sum, err := c.Add(ctx, "n", 1); sum != 1 || err != nil {
					t.Errorf("Add = %d, %v", sum, err)
				}
				synctest.Wait()
			}
		})
	}
}
