package tcpstore

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestQueues(t *testing.T) {
	l := stepLoop(t, ServerOptions{})
	c := l.connect(ProtocolV2)
	c.send(opQueueLen, "q")
	c.expect(0)
	c.send(opQueuePop, "q")
	c.expect(0) // and no value
	c.send(opCheck, 1, "q")
	c.expect(replyNotReady)
	for _, value := range []string{"one", "", "three"} {
		c.send(opQueuePush, "q", value)
	}
	c.send(opQueueLen, "q")
	c.expect(3)
	c.send(opCheck, 1, "q")
	c.expect(replyReady)
	c.send(opWait, 1, "q")
	c.expect(replyStopWaiting)
	// A key and a queue of the same name are independent.
	c.send(opNumKeys)
	c.expect(0)
	c.send(opDelete, "q")
	c.expect(0)
	c.send(opGet, "q")
	c.expect("")
	for i, value := range []string{"one", "", "three"} {
		c.send(opQueuePop, "q")
		c.expect(3-i, value)
	}
	c.send(opQueuePop, "q")
	c.expect(0)
	c.send(opCheck, 1, "q")
	c.expect(replyNotReady)
	if l.store.Size() != 0 {
		t.Errorf("the empty store counts %d bytes", l.store.Size())
	}
}

func TestQueuePushWakesOne(t *testing.T) {
	l := stepLoop(t, ServerOptions{})
	first, second, pusher := l.connect(ProtocolV2), l.connect(ProtocolV2), l.connect(ProtocolV2)
	for _, c := range []*rawClient{first, second} {
		c.send(opWait, 1, "q")
		c.isWaiting(t, l)
	}
	pusher.send(opQueuePush, "q", "a")
	first.expect(replyStopWaiting)
	first.send(opQueuePop, "q")
	first.expect(1, "a")
	pusher.send(opQueuePush, "q", "b")
	second.expect(replyStopWaiting)
	pusher.send(opQueuePop, "q") // another client takes the value
	pusher.expect(1, "b")
	second.send(opQueuePop, "q")
	second.expect(0)
	// A value, in contrast, releases all waits.
	for _, c := range []*rawClient{first, second} {
		c.send(opWait, 1, "q")
	}
	pusher.send(opSet, "q", "v")
	first.expect(replyStopWaiting)
	second.expect(replyStopWaiting)
}

// isWaiting checks that a wait is in progress.
func (c *rawClient) isWaiting(t *testing.T, l steppedLoop) {
	t.Helper()
	l.step()
	if l.store.Awaited() == 0 {
		t.Fatal("no wait is in progress")
	}
}

func TestListKeys(t *testing.T) {
	l := stepLoop(t, ServerOptions{})
	c := l.connect(ProtocolV2)
	c.send(opListKeys)
	c.expect(0)
	c.send(opMultiSet, 2, "a", "1", "", "2")
	c.send(opQueuePush, "q", "v")
	c.send(opListKeys)
	c.expect(2)
	var keys []string
	for range 2 {
		length := c.nc.read(t, 8)
		keys = append(keys, string(c.nc.read(t, int(length[0]))))
	}
	slices.Sort(keys)
	if diff := cmp.Diff([]string{"", "a"}, keys); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	c.ping()
}

func TestBarrierOp(t *testing.T) {
	l := stepLoop(t, ServerOptions{})
	var clients [3]*rawClient
	for i := range clients {
		clients[i] = l.connect(ProtocolV2)
	}
	waiting := l.connect(ProtocolV2)
	waiting.send(opWait, 1, "b")

	clients[0].send(opBarrier, "b", 3)
	clients[0].send(opCancelWait) // its client gives up and stays counted
	clients[0].expect(replyWaitCanceled)
	clients[0].send(opCheck, 1, "b")
	clients[0].expect(replyReady)
	clients[0].send(opNumKeys)
	clients[0].expect(1)
	clients[1].send(opBarrier, "b", 3)
	clients[2].send(opBarrier, "b", 3)
	for _, c := range []*rawClient{clients[1], clients[2], waiting} {
		c.expect(replyStopWaiting)
	}
	clients[0].send(opBarrier, "b", 3) // it never resets
	clients[0].expect(replyStopWaiting)
	clients[0].send(opGet, "b")
	clients[0].expect("4")

	clients[0].send(opBarrier, "c", 5)
	clients[1].send(opSet, "c", "x") // as in torch's server: a barrier is also a wait for its key
	clients[0].expect(replyStopWaiting)
	clients[0].send(opBarrier, "d", 0)
	clients[0].expect(replyStopWaiting)
}

// Large values that arrive in pieces are stored without another copy, and no request behind them is lost.
func TestBigValues(t *testing.T) {
	l := stepLoop(t, ServerOptions{})
	c := l.connect(ProtocolV2)
	big := func(b byte) []byte { return bytes.Repeat([]byte{b}, 300_000) }
	for i, key := range []string{"a", "b", "a"} {
		c.write(slices.Concat(encode(ProtocolV2, opSet, key, big(byte(i))), encode(ProtocolV2, opAdd, "n", 1)))
		c.expect(i + 1)
	}
	c.send(opAppend, "b", big(7))
	c.send(opCompareSet, "c", "", big(8))
	c.expect(string(big(8)))
	c.send(opQueuePush, "q", big(9))
	c.send(opMultiGet, 3, "a", "b", "c")
	c.expect(string(big(2)), string(append(big(1), big(7)...)), string(big(8)))
	c.send(opQueuePop, "q")
	c.expect(1, string(big(9)))
	for _, key := range []string{"a", "b", "c", "n"} {
		c.send(opDelete, key)
		c.expect(1)
	}
	if l.store.Size() != 0 || l.held > 100 {
		t.Errorf("the empty store counts %d bytes, its connection %d", l.store.Size(), l.held)
	}
}
