package tcpstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// recordedCalls makes each recorded call with a Client. want is what torch's client returned.
var recordedCalls = map[string]struct {
	do   func(ctx context.Context, c *Client) (any, error)
	want string
}{
	"set k=v1":                     {do: set("k", "v1")},
	"get k":                        {get("k"), "v1"},
	"get k after a timed-out wait": {get("k"), "v1"},
	"get n":                        {get("n"), "3"},
	"add n +5":                     {add("n", 5), "5"},
	"add n -2":                     {add("n", -2), "3"},
	"check [k]":                    {check("k"), "true"},
	"check [k,absent]":             {check("k", "absent"), "false"},
	"wait [k,n]":                   {do: wait("k", "n")},
	"wait [absent] 300ms (times out)": {do: inVain("absent", func(ctx context.Context, c *Client) error {
		return c.Wait(ctx, "absent")
	})},
	"compare_set k v1->v2":                                     {compareSet("k", "v1", "v2"), "v2"},
	"compare_set k wrong->v3":                                  {compareSet("k", "wrong", "v3"), "v2"},
	"compare_set new ''->v (key absent, expected empty)":       {compareSet("new", "", "v"), "v"},
	"compare_set none exp->v (key absent, expected not empty)": {compareSet("none", "exp", "v"), "exp"},
	"num_keys":          {func(ctx context.Context, c *Client) (any, error) { return c.NumKeys(ctx) }, "3"},
	"delete_key k":      {del("k"), "true"},
	"delete_key absent": {del("absent"), "false"},
	"append a xx":       {do: appendTo("a", "xx")},
	"append a yy":       {do: appendTo("a", "yy")},
	"multi_set [m1,m2]": {do: func(ctx context.Context, c *Client) (any, error) {
		return nil, c.MultiSet(ctx, kvstore.Pair{Key: "m1", Value: []byte("1")}, kvstore.Pair{Key: "m2", Value: []byte("22")})
	}},
	"multi_get [m1,m2]": {func(ctx context.Context, c *Client) (any, error) {
		values, err := c.MultiGet(ctx, "m1", "m2")
		return bytes.Join(values, []byte(" ")), err
	}, "1 22"},
	"set with binary value": {do: set("bin", "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f")},
	"clone then get m1":     {get("m1"), "1"},

	"queue_push q one":      {do: push("q", "one")},
	"queue_push q two":      {do: push("q", "two")},
	"queue_len q":           {queueLen("q"), "2"},
	"queue_len q, empty":    {queueLen("q"), "0"},
	"queue_pop q, blocking": {func(ctx context.Context, c *Client) (any, error) { return c.QueuePop(ctx, "q") }, "two"},
	"queue_pop q, not blocking": {func(ctx context.Context, c *Client) (any, error) {
		value, _, err := c.TryQueuePop(ctx, "q")
		return value, err
	}, "one"},
	"barrier alone": {do: func(ctx context.Context, c *Client) (any, error) {
		return nil, c.ServerBarrier(ctx, "alone", 1)
	}},
	"barrier pair 300ms (times out)": {do: inVain("pair", func(ctx context.Context, c *Client) error {
		return c.ServerBarrier(ctx, "pair", 2)
	})},
}

type storeCall = func(ctx context.Context, c *Client) (any, error)

func set(key, value string) storeCall {
	return func(ctx context.Context, c *Client) (any, error) { return nil, c.Set(ctx, key, []byte(value)) }
}

func get(key string) storeCall {
	return func(ctx context.Context, c *Client) (any, error) { return c.Get(ctx, key) }
}

func add(key string, delta int64) storeCall {
	return func(ctx context.Context, c *Client) (any, error) { return c.Add(ctx, key, delta) }
}

func check(keys ...string) storeCall {
	return func(ctx context.Context, c *Client) (any, error) { return c.Check(ctx, keys...) }
}

func wait(keys ...string) storeCall {
	return func(ctx context.Context, c *Client) (any, error) { return nil, c.Wait(ctx, keys...) }
}

// inVain makes a call that times out after its request was sent. Its error must name the key.
func inVain(key string, call func(ctx context.Context, c *Client) error) storeCall {
	return func(ctx context.Context, c *Client) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		defer cancel()
		err := call(ctx, c)
		if !errors.Is(err, kvstore.ErrTimeout) || !strings.Contains(err.Error(), fmt.Sprintf("%q", key)) {
			return nil, fmt.Errorf("call = %w, want a timeout that names %q", err, key)
		}
		return nil, nil
	}
}

func push(key, value string) storeCall {
	return func(ctx context.Context, c *Client) (any, error) { return nil, c.QueuePush(ctx, key, []byte(value)) }
}

func queueLen(key string) storeCall {
	return func(ctx context.Context, c *Client) (any, error) { return c.QueueLen(ctx, key) }
}

func compareSet(key, expected, desired string) storeCall {
	return func(ctx context.Context, c *Client) (any, error) {
		return c.CompareSet(ctx, key, []byte(expected), []byte(desired))
	}
}

func del(key string) storeCall {
	return func(ctx context.Context, c *Client) (any, error) { return c.Delete(ctx, key) }
}

func appendTo(key, value string) storeCall {
	return func(ctx context.Context, c *Client) (any, error) { return nil, c.Append(ctx, key, []byte(value)) }
}

// show formats a result as the tables do.
func show(result any) string {
	switch r := result.(type) {
	case nil:
		return ""
	case []byte:
		return string(r)
	}
	return fmt.Sprint(result)
}

// TestClientReplay makes each recorded call to a server that only knows the recorded bytes.
func TestClientReplay(t *testing.T) {
	t.Parallel()
	for version, calls := range recordings(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			l := listen(t)
			played := make(chan error, 1)
			go func() { played <- playBack(l, calls, protocolOf(version)) }()
			opts := ClientOptions{Protocol: protocolOf(version), unconfirmed: true}
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			dialClient := func() *Client {
				c, err := Dial(ctx, l.Addr().String(), opts)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				return c
			}
			c := dialClient()
			for _, call := range calls {
				if call.Op == "connect" {
					continue
				}
				if strings.HasPrefix(call.Op, "clone") {
					c.Close()
					c = dialClient()
				}
				known, ok := recordedCalls[call.Op]
				if !ok {
					t.Fatalf("no test knows the recorded call %q", call.Op)
				}
				result, err := known.do(ctx, c)
				if err != nil || show(result) != known.want {
					c.Close()
					t.Fatalf("%s = %q, %v; want %q (server: %v)", call.Op, show(result), err, known.want, <-played)
				}
			}
			c.Close()
			if err := <-played; err != nil {
				t.Error(err)
			}
		})
	}
}

// playBack serves recorded calls one after another. Its error describes how the client differs from the recorded one.
func playBack(l net.Listener, calls []recording, p Protocol) (err error) {
	defer l.Close()
	var nc net.Conn
	hangUp := func() error {
		if nc == nil {
			return nil
		}
		defer nc.Close()
		if rest, err := io.ReadAll(nc); len(rest) > 0 || err != nil {
			return fmt.Errorf("client sent %x at last (%w)", rest, err)
		}
		return nil
	}
	for i, call := range calls {
		first := i == 0 || call.Op == "connect" || strings.HasPrefix(call.Op, "clone")
		// Protocol 1 cannot cancel a wait, so the client closes its connection.
		first = first || p == ProtocolV1 && strings.HasSuffix(calls[i-1].Op, "(times out)")
		if first {
			if err := hangUp(); err != nil {
				return err
			}
			if nc, err = l.Accept(); err != nil {
				return err
			}
			nc.SetDeadline(time.Now().Add(testTimeout))
		}
		for _, turn := range turns(p, call) {
			got := make([]byte, len(turn.C2S))
			if _, err := io.ReadFull(nc, got); err != nil || !bytes.Equal(got, turn.C2S) {
				nc.Close()
				return fmt.Errorf("%s: client sent %x (%w), recorded is %x", call.Op, got, err, turn.C2S)
			}
			if _, err := nc.Write(turn.S2C); err != nil {
				return err
			}
		}
	}
	return hangUp()
}

// turns splits a call into requests and replies.
func turns(p Protocol, call recording) []recording {
	var cut []recording
	c2s, s2c := bytes.Clone(call.C2S), call.S2C
	next := func(request, answer int) {
		cut = append(cut, recording{call.Op, c2s[:request], s2c[:answer]})
		c2s, s2c = c2s[request:], s2c[answer:]
	}
	if bytes.HasPrefix(c2s, handshake) {
		// The nonce of a PING is the process's id.
		nonce := binary.LittleEndian.AppendUint32(nil, uint32(os.Getpid()))
		copy(c2s[len(handshake)+1:], nonce)
		s2c = append(nonce, s2c[len(nonce):]...)
		next(len(handshake)+1+len(nonce), len(nonce))
	}
	if code, _ := p.code(opWait); len(c2s) > 0 && c2s[0] == code {
		length := 9
		for range binary.LittleEndian.Uint64(c2s[1:]) {
			length += 8 + int(binary.LittleEndian.Uint64(c2s[length:]))
		}
		if strings.HasSuffix(call.Op, "(times out)") {
			next(length, 0)
		} else {
			next(length, 1)
		}
	}
	if code, _ := p.code(opBarrier); len(c2s) > 0 && c2s[0] == code && strings.HasSuffix(call.Op, "(times out)") {
		next(len(c2s)-1, 0) // without CANCEL_WAIT
	}
	if len(c2s) > 0 {
		next(len(c2s), len(s2c))
	}
	return cut
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}
