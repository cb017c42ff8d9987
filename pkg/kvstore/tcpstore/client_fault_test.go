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
		for _, talk := range conversations(p) {
			t.Run(fmt.Sprint(p, "/", talk.name), func(t *testing.T) {
				s := script(p, append(talk.turns, talk.turns...)...)
				c := scriptedClient(ClientOptions{Protocol: p}, s)
				for range 2 {
					if result, err := talk.do(t.Context(), c); err != nil || show(result) != talk.want {
						t.Errorf("%q, %v; want %q", show(result), err, talk.want)
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

// TestClientCutAnywhere ends the connection after each number of bytes of the answers.
func TestClientCutAnywhere(t *testing.T) {
	for _, p := range bothProtocols {
		for _, talk := range conversations(p) {
			t.Run(fmt.Sprint(p, "/", talk.name), func(t *testing.T) {
				for cut := range answered(p, talk) {
					s := script(p, talk.turns...)
					s.limit = cut
					c := scriptedClient(ClientOptions{Protocol: p}, s)
					_, err := talk.do(t.Context(), c)
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

// answered counts the bytes of answers to the greeting and the call.
func answered(p Protocol, talk conversation) int {
	n := len(greetingOf(p).answer)
	for _, turn := range talk.turns {
		n += len(turn.answer)
	}
	return n
}

// TestClientStalledAnywhere lets the server fall silent after each number of bytes; the call's context ends it.
func TestClientStalledAnywhere(t *testing.T) {
	gaveUp := errors.New("gave up")
	for _, p := range bothProtocols {
		for _, talk := range conversations(p) {
			t.Run(fmt.Sprint(p, "/", talk.name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					for cut := range answered(p, talk) {
						for _, cancelled := range []bool{false, true} {
							s := script(p, talk.turns...)
							s.limit, s.stall = cut, true
							c := scriptedClient(ClientOptions{Protocol: p}, s)
							ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
							want := kvstore.ErrTimeout
							if cancelled {
								ctx, want = context.WithoutCancel(ctx), gaveUp
								cancelCause := context.CancelCauseFunc(nil)
								ctx, cancelCause = context.WithCancelCause(ctx)
								time.AfterFunc(time.Minute, func() { cancelCause(gaveUp) })
							}
							begin := time.Now()
							_, err := talk.do(ctx, c)
							took := time.Since(begin)
							cancel()
							if !errors.Is(err, want) || errors.Is(err, kvstore.ErrTimeout) == cancelled {
								t.Errorf("stall after %d bytes: %v, want %v", cut, err, want)
							}
							// A second more is for a server that does not confirm the end of a wait.
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

// TestClientCancelsWaits ends waits by their context, and the server's release may cross that.
func TestClientCancelsWaits(t *testing.T) {
	const p = ProtocolV2
	cancels := func(request, answer []byte) []turn {
		return []turn{{request, nil}, {encode(p, opCancelWait), answer}}
	}
	waits := encode(p, opWait, 2, "/a", "/b")
	getWaits := encode(p, opWait, 1, "/a")
	barrier := encode(p, opBarrier, "/a", 2)
	passBarrier := func(ctx context.Context, c *Client) (any, error) { return nil, c.ServerBarrier(ctx, "a", 2) }
	// Then it asks which key is missing.
	asks := func(a, b byte) turn {
		return turn{append(encode(p, opCheck, 1, "/a"), encode(p, opCheck, 1, "/b")...), said(a, b)}
	}
	canceled, crossed := said(replyWaitCanceled), said(replyStopWaiting, replyWaitCanceled)
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
				next := turn{encode(p, opAdd, "/n", 1), said(1)}
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
				<-time.After(time.Hour) // no deadline is left
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

// TestClientRefusesNonsense answers calls with what no server says.
func TestClientRefusesNonsense(t *testing.T) {
	const p = ProtocolV2
	get := []turn{{encode(p, opWait, 1, "/k"), said(replyStopWaiting)}, {encode(p, opGet, "/k"), nil}}
	tests := []struct {
		call     string
		nonsense []byte // in place of the last answer
	}{
		{"set", said(byte(1), byte(2), byte(3), byte(4))},
		{"get", said(-1)},
		{"get", said(maxReply + 1)},
		{"get", said(-1 << 63)},
		{"check", said(byte(2))},
		{"wait", said(byte(1))},
		{"num keys", said(-1)},
		{"delete", said(2)},
		{"delete", said(-1)},
		{"multi get", said("1", -1)},
		{"multi get", said("1", maxReply)}, // too much in all
		{"try pop", said(-1)},
		{"try pop", said(1, maxReply+1)},
		{"queue length", said(-1)},
		{"list keys", said(-1)},
		{"list keys", said(maxListed + 1)},
		{"list keys", said(1, -1)},
		{"barrier", said(byte(1))},
	}
	talks := map[string]conversation{}
	for _, talk := range conversations(p) {
		talks[talk.name] = talk
	}
	talks["get"] = conversation{do: talks["get"].do, turns: get}
	for _, tt := range tests {
		talk := talks[tt.call]
		turns := append([]turn{}, talk.turns...)
		turns[len(turns)-1].answer = tt.nonsense
		s := script(p, turns...)
		c := scriptedClient(ClientOptions{}, s)
		result, err := talk.do(t.Context(), c)
		if !errors.Is(err, kvstore.ErrProtocol) || errors.Is(err, kvstore.ErrConnection) {
			t.Errorf("%s answered by %x: %q, %v; want ErrProtocol", tt.call, tt.nonsense, show(result), err)
		}
		if <-s.over; s.err != nil || len(c.conns) > 0 {
			t.Errorf("%s answered by %x: %v, %d connections are kept", tt.call, tt.nonsense, s.err, len(c.conns))
		}
	}
}

// Bytes behind an answer would be taken for the next one, so their connection is not used again.
func TestClientLeavesAConnectionThatSaysMore(t *testing.T) {
	const p = ProtocolV2
	one := script(p, turn{encode(p, opAdd, "/n", 1), said(1, byte(7))})
	two := script(p, turn{encode(p, opAdd, "/n", 1), said(2)})
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

// endingConn ends the call's context with the last byte of the second answer.
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

// A context that ends with the call's last byte interrupts nothing, neither this call nor the next one.
func TestClientContextEndsWithTheAnswer(t *testing.T) {
	for _, p := range bothProtocols {
		synctest.Test(t, func(t *testing.T) {
			add := turn{encode(p, opAdd, "/n", 1), said(1)}
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
