package tcpstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/internal/storetest"
)

// testClient uses each kind of client on torch's server.
func (d *torchDriver) testClient(t *testing.T) {
	lane := d.lane(t)
	play := func(call storetest.Call) storetest.Outcome {
		call.Timeout = storetest.LongWait
		outcomes, err := lane.play(lane.server, []storetest.Call{call})
		if err != nil {
			t.Fatal(err)
		}
		return outcomes[0]
	}
	play(storetest.Call{Op: "set", Keys: []storetest.Text{"torch"}, Values: []storetest.Text{"from python"}})
	opts := ClientOptions{Protocol: protocolOf(d.version)}
	one := dialClient(t, lane.server, opts)
	opts.unconfirmed = true
	two := dialClient(t, lane.server, opts)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	if value, err := one.Get(ctx, "torch"); string(value) != "from python" || err != nil {
		t.Errorf("Get = %q, %v", value, err)
	}
	if err := one.Set(ctx, "go", []byte("from Go")); err != nil {
		t.Error(err)
	}
	if got := play(storetest.Call{Op: "get", Keys: []storetest.Text{"go"}}); len(got.Values) != 1 || got.Values[0] != "from Go" {
		t.Errorf("torch got %v", got)
	}
	for _, key := range []string{"torch", "go"} {
		if there, err := one.Delete(ctx, key); !there || err != nil {
			t.Errorf("Delete = %v, %v", there, err)
		}
	}

	for _, c := range []*Client{one, two} {
		calls := recordings(t)[map[string]string{
			"1.13": "1.13.0", "2.6": "2.6.0", "2.14": "2.14.1", testenv.Official: "2.15.0",
		}[d.version]]
		for _, call := range calls {
			if call.Op == "connect" || strings.HasPrefix(call.Op, "queue") && !d.libuv {
				continue
			}
			known := recordedCalls[call.Op]
			if result, err := known.do(ctx, c); err != nil || show(result) != known.want {
				t.Errorf("%s = %q, %v; want %q", call.Op, show(result), err, known.want)
			}
		}
		for _, key := range []string{"k", "n", "new", "none", "a", "m1", "m2", "bin", "alone", "pair"} {
			if _, err := c.Delete(ctx, key); err != nil {
				t.Error(err)
			}
		}
		if n, err := c.NumKeys(ctx); n != 0 || err != nil {
			t.Errorf("NumKeys = %d, %v", n, err)
		}
		testMultiple(t, ctx, c)
		testLargeValue(t, ctx, c)
	}
	testReleases(t, ctx, one)
	testNamesMissing(t, ctx, one)
	testCrossings(t, ctx, one)
	if d.version == "2.14" || d.version == testenv.Official {
		d.testNewerCalls(t, ctx, one)
	}
	testWorkers(t, lane.server, opts)
}

// testMultiple sets and gets several keys at once, or one after another in protocol 1.
func testMultiple(t *testing.T, ctx context.Context, c *Client) {
	t.Helper()
	one, two := kvstore.Pair{Key: "x", Value: []byte("1")}, kvstore.Pair{Key: "x", Value: []byte("2")}
	if err := c.MultiSet(ctx, one, kvstore.Pair{Key: "y"}, two); err != nil {
		t.Error(err)
	}
	values, err := c.MultiGet(ctx, "x", "y", "x")
	if err != nil || string(bytes.Join(values, []byte("|"))) != "2||2" {
		t.Errorf("MultiGet = %q, %v", values, err)
	}
	for _, key := range []string{"x", "y"} {
		if there, err := c.Delete(ctx, key); !there || err != nil {
			t.Errorf("Delete = %v, %v", there, err)
		}
	}
	if present, err := c.Check(ctx); !present || err != nil {
		t.Errorf("Check of no keys = %v, %v", present, err)
	}
	if err := c.Wait(ctx); err != nil {
		t.Errorf("Wait for no keys = %v", err)
	}
}

func testLargeValue(t *testing.T, ctx context.Context, c *Client) {
	t.Helper()
	large := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7}, maxValue/7)
	if err := c.Set(ctx, "large", large); err != nil {
		t.Error(err)
	}
	if value, err := c.Get(ctx, "large"); err != nil || !bytes.Equal(value, large) {
		t.Errorf("%d bytes came back, %v", len(value), err)
	}
	if there, err := c.Delete(ctx, "large"); !there || err != nil {
		t.Error(err)
	}
}

// testReleases blocks many calls and releases them.
func testReleases(t *testing.T, ctx context.Context, c *Client) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			key := fmt.Sprint("late", i)
			if value, err := c.Get(ctx, key); string(value) != key || err != nil {
				t.Errorf("Get = %q, %v", value, err)
			}
		})
	}
	wg.Go(func() {
		if err := kvstore.Barrier(ctx, c, kvstore.BarrierOptions{WorldSize: 2, Prefix: "pair"}); err != nil {
			t.Error(err)
		}
	})
	for i := range 20 {
		key := fmt.Sprint("late", i)
		if err := c.Set(ctx, key, []byte(key)); err != nil {
			t.Error(err)
		}
	}
	if err := kvstore.Barrier(ctx, c, kvstore.BarrierOptions{WorldSize: 2, Prefix: "pair"}); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// testNamesMissing checks the keys that the error of a wait names.
func testNamesMissing(t *testing.T, ctx context.Context, c *Client) {
	t.Helper()
	if err := c.Set(ctx, "there", nil); err != nil {
		t.Error(err)
	}
	limited, cancel := context.WithTimeout(ctx, 500*time.Millisecond) // enough to begin the wait
	defer cancel()
	_, err := c.MultiGet(limited, "absent", "there", "gone")
	names := `wait for key "absent", "gone" at`
	if c.opts.Protocol == ProtocolV1 {
		names = `wait for key "absent", "gone", "there" at`
	}
	if !errors.Is(err, kvstore.ErrTimeout) || !strings.Contains(err.Error(), names) {
		t.Errorf("MultiGet = %v, want a timeout: %s", err, names)
	}
}

// testCrossings ends waits at about the time of their release. Whichever comes first, no reply may be taken for
// another.
func testCrossings(t *testing.T, ctx context.Context, c *Client) {
	t.Helper()
	released, ended := 0, 0
	for i := range testenv.Repeat(t, 150, 5000) {
		key := fmt.Sprint("crossing", i)
		limited, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(400))*time.Microsecond)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := c.Set(ctx, key, nil); err != nil {
				t.Error(err)
			}
		})
		switch err := c.Wait(limited, key); {
		case err == nil:
			released++
		case errors.Is(err, kvstore.ErrTimeout):
			ended++
		default:
			t.Errorf("Wait = %v", err)
		}
		cancel()
		if sum, err := c.Add(ctx, "crossings", 1); sum != int64(i+1) || err != nil {
			t.Fatalf("Add = %d, %v; want %d", sum, err, i+1)
		}
		wg.Wait()
	}
	t.Logf("%d waits were released, %d ended", released, ended)
}

// testNewerCalls makes the calls that torch 2.6 lacks. Only servers with libuv have queues.
func (d *torchDriver) testNewerCalls(t *testing.T, ctx context.Context, c *Client) {
	t.Helper()
	keys, err := c.ListKeys(ctx)
	n, countErr := c.NumKeys(ctx)
	if err := errors.Join(err, countErr); err != nil || int64(len(keys)) != n || !slices.Contains(keys, "crossings") {
		t.Errorf("ListKeys = %q, %v; want %d keys without a slash", keys, err, n)
	}
	limited, cancel := context.WithTimeout(ctx, time.Second) // enough to be counted
	defer cancel()
	err = c.ServerBarrier(limited, "trio", 3)
	if !errors.Is(err, kvstore.ErrTimeout) || !strings.Contains(err.Error(), `"trio"`) {
		t.Errorf("ServerBarrier = %v, want a timeout that names its key", err)
	}
	var wg sync.WaitGroup
	for range 2 { // the arrival that gave up stays counted
		wg.Go(func() {
			if err := c.ServerBarrier(ctx, "trio", 3); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if d.libuv {
		testQueue(t, ctx, c)
		return
	}
	// A server that lacks a call only closes the connection.
	if err := c.QueuePush(ctx, "q", nil); !errors.Is(err, kvstore.ErrConnection) {
		t.Errorf("QueuePush = %v, want ErrConnection", err)
	}
}

// testQueue blocks calls of QueuePop on a queue and releases them.
func testQueue(t *testing.T, ctx context.Context, c *Client) {
	t.Helper()
	var mu sync.Mutex
	var popped []string
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			value, err := c.QueuePop(ctx, "line")
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			popped = append(popped, string(value))
		})
	}
	want := []string{"a", "b", "c"}
	for _, value := range want {
		if err := c.QueuePush(ctx, "line", []byte(value)); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	slices.Sort(popped)
	if !slices.Equal(popped, want) {
		t.Errorf("popped %q, want %q", popped, want)
	}
	if value, there, err := c.TryQueuePop(ctx, "line"); there || err != nil {
		t.Errorf("TryQueuePop of an empty queue = %q, %v, %v", value, there, err)
	}
	if n, err := c.QueueLen(ctx, "line"); n != 0 || err != nil {
		t.Errorf("QueueLen = %d, %v", n, err)
	}
}

func testWorkers(t *testing.T, addr string, opts ClientOptions) {
	t.Helper()
	opts.Workers = 2
	host := opts
	host.Host = true
	var wg sync.WaitGroup
	wg.Go(func() { dialClient(t, addr, host) })
	dialClient(t, addr, opts)
	wg.Wait()
}

// testClientOfOtherProtocol checks that a client of protocol 1 does not accept a torch 2.x server.
func (d *torchDriver) testClientOfOtherProtocol(t *testing.T) {
	addr := d.lane(t).server
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := Dial(ctx, addr, ClientOptions{Protocol: ProtocolV1})
	if !errors.Is(err, kvstore.ErrConnection) || !strings.Contains(err.Error(), addr) {
		t.Errorf("Dial = %v, want ErrConnection", err)
	}
	c := dialClient(t, addr, ClientOptions{})
	if err := c.Set(t.Context(), "go", nil); err != nil {
		t.Error(err)
	}
}

// TestClientCrossings needs no torch.
func TestClientCrossings(t *testing.T) {
	for _, p := range bothProtocols {
		_, addr := startServer(t, ServerOptions{})
		c := dialClient(t, addr, ClientOptions{Protocol: p})
		testNamesMissing(t, t.Context(), c)
		testCrossings(t, t.Context(), c)
	}
}
