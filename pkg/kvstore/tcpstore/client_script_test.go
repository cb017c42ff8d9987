package tcpstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// turn is a request that a scripted server expects, and its reply.
type turn struct {
	request, answer []byte
}

// replyOf joins the fields of a reply: strings as values, ints as i, bytes as they are.
func replyOf(fields ...any) []byte {
	b := []byte{}
	for _, field := range fields {
		switch f := field.(type) {
		case string:
			b = appendValue(b, []byte(f))
		case int:
			b = appendInt(b, int64(f))
		case byte:
			b = append(b, f)
		case []byte:
			b = append(b, f...)
		}
	}
	return b
}

func nonce() uint32 { return uint32(os.Getpid()) }

// handshakeTurn is the first turn of a client of p.
func handshakeTurn(p Protocol) turn {
	if p == ProtocolV1 {
		return turn{encode(p, opCheck, 0), replyOf(replyReady)}
	}
	ping := confirmed(p, nil)
	return turn{append(bytes.Clone(handshake), ping.request...), ping.answer}
}

// confirmed is a request without a reply, as a client of p confirms it.
func confirmed(p Protocol, request []byte) turn {
	if p == ProtocolV1 {
		return turn{append(request, encode(p, opCheck, 0)...), replyOf(replyReady)}
	}
	ping := encode(p, opPing, nonce())
	return turn{append(request, ping...), ping[1:]}
}

// conversation is one call of a client and its bytes on the wire.
type conversation struct {
	name  string
	do    storeCall
	turns []turn
	want  string
}

// conversations has one of every call that p supports.
func conversations(p Protocol) []conversation {
	waits := func(keys ...any) turn {
		return turn{encode(p, opWait, append([]any{len(keys)}, keys...)...), replyOf(replyStopWaiting)}
	}
	all := []conversation{
		{
			"set", set("k", "v"),
			[]turn{confirmed(p, encode(p, opSet, "/k", "v"))},
			"",
		},
		{"get", get("k"), []turn{waits("/k"), {encode(p, opGet, "/k"), replyOf("value")}}, "value"},
		{"get nothing", get("k"), []turn{waits("/k"), {encode(p, opGet, "/k"), replyOf("")}}, ""},
		{"add", add("n", -5), []turn{{encode(p, opAdd, "/n", -5), replyOf(-3)}}, "-3"},
		{"check", check("a", "b"), []turn{{encode(p, opCheck, 2, "/a", "/b"), replyOf(replyNotReady)}}, "false"},
		{"check none", check(), []turn{{encode(p, opCheck, 0), replyOf(replyReady)}}, "true"},
		{"wait", wait("a", "b"), []turn{waits("/a", "/b")}, ""},
		{"compare set", compareSet("k", "a", "b"), []turn{{encode(p, opCompareSet, "/k", "a", "b"), replyOf("b")}}, "b"},
		{
			"num keys", func(ctx context.Context, c *Client) (any, error) { return c.NumKeys(ctx) },
			[]turn{{encode(p, opNumKeys), replyOf(17)}},
			"17",
		},
		{"delete", del("k"), []turn{{encode(p, opDelete, "/k"), replyOf(1)}}, "true"},
		{"delete nothing", del("k"), []turn{{encode(p, opDelete, "/k"), replyOf(0)}}, "false"},
	}
	multiSet := func(ctx context.Context, c *Client) (any, error) {
		return nil, c.MultiSet(ctx, kvstore.Pair{Key: "a", Value: []byte("1")}, kvstore.Pair{Key: "b", Value: []byte("22")})
	}
	multiGet := func(ctx context.Context, c *Client) (any, error) {
		values, err := c.MultiGet(ctx, "a", "b")
		return bytes.Join(values, []byte(" ")), err
	}
	if p == ProtocolV1 {
		return append(all,
			conversation{"multi set", multiSet, []turn{
				confirmed(p, append(encode(p, opSet, "/a", "1"), encode(p, opSet, "/b", "22")...)),
			}, ""},
			conversation{"multi get", multiGet, []turn{
				waits("/a", "/b"), {encode(p, opGet, "/a"), replyOf("1")}, {encode(p, opGet, "/b"), replyOf("22")},
			}, "1 22"})
	}
	pop := func(ctx context.Context, c *Client) (any, error) { return c.QueuePop(ctx, "q") }
	tryPop := func(ctx context.Context, c *Client) (any, error) {
		value, ok, err := c.TryQueuePop(ctx, "q")
		return fmt.Sprintf("%s %v", value, ok), err
	}
	return append(all, []conversation{
		{"multi set", multiSet, []turn{confirmed(p, encode(p, opMultiSet, 2, "/a", "1", "/b", "22"))}, ""},
		{"multi get", multiGet, []turn{
			waits("/a", "/b"), {encode(p, opMultiGet, 2, "/a", "/b"), replyOf("1", "22")},
		}, "1 22"},
		{"append", appendTo("k", "v"), []turn{confirmed(p, encode(p, opAppend, "/k", "v"))}, ""},
		{
			"push", func(ctx context.Context, c *Client) (any, error) { return nil, c.QueuePush(ctx, "q", []byte("v")) },
			[]turn{confirmed(p, encode(p, opQueuePush, "/q", "v"))},
			"",
		},
		{"pop", pop, []turn{
			waits("/q"), {encode(p, opQueuePop, "/q"), replyOf(0)}, // another client popped the value first
			waits("/q"), {encode(p, opQueuePop, "/q"), replyOf(2, "v")},
		}, "v"},
		{"try pop", tryPop, []turn{{encode(p, opQueuePop, "/q"), replyOf(1, "v")}}, "v true"},
		{"try pop nothing", tryPop, []turn{{encode(p, opQueuePop, "/q"), replyOf(0)}}, " false"},
		{
			"queue length", func(ctx context.Context, c *Client) (any, error) { return c.QueueLen(ctx, "q") },
			[]turn{{encode(p, opQueueLen, "/q"), replyOf(3)}},
			"3",
		},
		{
			"list keys", func(ctx context.Context, c *Client) (any, error) { return c.ListKeys(ctx) },
			[]turn{{encode(p, opListKeys), replyOf(3, "/a", "init/", "//b")}},
			"[a /b]",
		},
		{
			"barrier", func(ctx context.Context, c *Client) (any, error) { return nil, c.ServerBarrier(ctx, "b", 4) },
			[]turn{{encode(p, opBarrier, "/b", 4), replyOf(replyStopWaiting)}},
			"",
		},
	}...)
}

// scriptedServer serves one connection by its turns.
type scriptedServer struct {
	turns []turn
	limit int  // bytes of replies to send; -1: all
	stall bool // then leave the connection open

	over chan struct{} // closed when either side has closed the connection
	err  error         // valid after over: the client's mistake
}

func script(p Protocol, turns ...turn) *scriptedServer {
	turns = append([]turn{handshakeTurn(p)}, turns...)
	return &scriptedServer{turns: turns, limit: -1, over: make(chan struct{})}
}

func (s *scriptedServer) serve(nc net.Conn) {
	defer close(s.over)
	defer nc.Close()
	for _, turn := range s.turns {
		got := make([]byte, len(turn.request))
		if n, err := io.ReadFull(nc, got); err != nil || !bytes.Equal(got, turn.request) {
			if !errors.Is(err, io.EOF) {
				s.err = fmt.Errorf("client sent %x (%w), want %x", got[:n], err, turn.request)
			}
			return
		}
		answer := turn.answer
		if s.limit >= 0 {
			answer = answer[:min(len(answer), s.limit)]
			s.limit -= len(answer)
		}
		nc.Write(answer) // fails if the client has closed the connection; then the next read fails too
		if len(answer) < len(turn.answer) {
			break
		}
	}
	if s.limit >= 0 && !s.stall {
		return
	}
	if rest, err := io.ReadAll(nc); len(rest) > 0 {
		s.err = fmt.Errorf("client sent %x more (%w)", rest, err)
	}
}

// scriptedClient returns a client whose connections are pipes, served by one server after another.
func scriptedClient(opts ClientOptions, servers ...*scriptedServer) *Client {
	c := newClient("scripted:1", opts)
	c.open = func(context.Context) (net.Conn, error) {
		if len(servers) == 0 {
			return nil, errors.New("no server is left")
		}
		theirs, ours := net.Pipe()
		go servers[0].serve(theirs)
		servers = servers[1:]
		return ours, nil
	}
	return c
}
