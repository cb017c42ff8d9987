package kvstore

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestQueues(t *testing.T) {
	l := stepLoop(t, ServerOptions{})
	c := l.connect(TodaysGeneration)
	c.send(opQueueLen, "q")
	c.expect(0)
	c.send(opQueuePop, "q")
	c.expect(0) // and no value
	c.send(opCheck, 1, "q")
	c.expect(answerNotReady)
	for _, value := range []string{"one", "", "three"} {
		c.send(opQueuePush, "q", value)
	}
	c.send(opQueueLen, "q")
	c.expect(3)
	c.send(opCheck, 1, "q")
	c.expect(answerReady)
	c.send(opWait, 1, "q")
	c.expect(answerStopWaiting)
	// Keys and queues of the same name are two things.
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
	c.expect(answerNotReady)
	if l.store.size != 0 {
		t.Errorf("the empty store counts %d bytes", l.store.size)
	}
}

func TestQueuePushWakesOne(t *testing.T) {
	l := stepLoop(t, ServerOptions{})
	first, second, pusher := l.connect(TodaysGeneration), l.connect(TodaysGeneration), l.connect(TodaysGeneration)
	for _, c := range []*rawClient{first, second} {
		c.send(opWait, 1, "q")
		c.isWaiting(t, l)
	}
	pusher.send(opQueuePush, "q", "a")
	first.expect(answerStopWaiting)
	first.send(opQueuePop, "q")
	first.expect(1, "a")
	pusher.send(opQueuePush, "q", "b")
	second.expect(answerStopWaiting)
	pusher.send(opQueuePop, "q") // and somebody else takes it
	pusher.expect(1, "b")
	second.send(opQueuePop, "q")
	second.expect(0)
	// A value, in contrast, wakes all.
	for _, c := range []*rawClient{first, second} {
		c.send(opWait, 1, "q")
	}
	pusher.send(opSet, "q", "v")
	first.expect(answerStopWaiting)
	second.expect(answerStopWaiting)
}

// isWaiting checks that c waits.
func (c *rawClient) isWaiting(t *testing.T, l steppedLoop) {
	t.Helper()
	l.turn()
	if len(l.store.waiting) == 0 {
		t.Fatal("nobody waits")
	}
}

func TestListKeys(t *testing.T) {
	l := stepLoop(t, ServerOptions{})
	c := l.connect(TodaysGeneration)
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
		clients[i] = l.connect(TodaysGeneration)
	}
	waiting := l.connect(TodaysGeneration)
	waiting.send(opWait, 1, "b")

	clients[0].send(opBarrier, "b", 3)
	clients[0].send(opCancelWait) // its client has lost patience, and stays counted
	clients[0].expect(answerWaitCanceled)
	clients[0].send(opCheck, 1, "b")
	clients[0].expect(answerReady)
	clients[0].send(opNumKeys)
	clients[0].expect(1)
	clients[1].send(opBarrier, "b", 3)
	clients[2].send(opBarrier, "b", 3)
	for _, c := range []*rawClient{clients[1], clients[2], waiting} {
		c.expect(answerStopWaiting)
	}
	clients[0].send(opBarrier, "b", 3) // it never resets
	clients[0].expect(answerStopWaiting)
	clients[0].send(opGet, "b")
	clients[0].expect("4")

	clients[0].send(opBarrier, "c", 5)
	clients[1].send(opSet, "c", "x") // as torch's server has it: this is a wait for the key too
	clients[0].expect(answerStopWaiting)
	clients[0].send(opBarrier, "d", 0)
	clients[0].expect(answerStopWaiting)
}

// What many clients take together has a bound, and who takes most pays for it.
func TestMemoryBound(t *testing.T) {
	const limit = 16 << 20
	half := func(n int) []byte {
		return encode(TodaysGeneration, opSet, "k", make([]byte, maxValue))[:n]
	}
	t.Run("half requests", func(t *testing.T) {
		l := stepLoop(t, ServerOptions{MaxMemory: limit})
		good := l.connect(TodaysGeneration)
		good.write(encode(TodaysGeneration, opSet, "mine", make([]byte, 1000))[:500])
		var bad []*rawClient
		for range 10 {
			c := l.connect(TodaysGeneration)
			c.write(half(3 << 20))
			bad = append(bad, c)
		}
		if l.held > limit {
			t.Errorf("%d bytes are held, want %d at most", l.held, limit)
		}
		if ended := 11 - l.open; ended < 5 || l.refused[ReasonMemory] != uint64(ended) {
			t.Errorf("%d connections ended, refused %v", ended, l.refused)
		}
		good.write(make([]byte, 521))
		good.send(opCheck, 1, "mine")
		good.expect(answerReady)
		for _, c := range bad {
			c.close()
		}
		if l.held != 0 {
			t.Errorf("%d bytes are held by nobody", l.held)
		}
	})
	t.Run("keys", func(t *testing.T) {
		l := stepLoop(t, ServerOptions{MaxMemory: limit})
		c := l.connect(TodaysGeneration)
		n := 0
		for ; l.open > 0 && n < 100_000; n++ {
			key := []byte{byte(n), byte(n >> 8), byte(n >> 16)}
			c.send(opSet, key, bytes.Repeat(key, 1000))
		}
		c.expectClosed()
		l.expectRefused(ReasonMemory)
		if l.store.size > limit || l.store.size < limit*9/10 {
			t.Errorf("the store is full with %d bytes, want about %d", l.store.size, limit)
		}
		// Reading and deleting go on.
		c = l.connect(TodaysGeneration)
		c.send(opDelete, []byte{0, 0, 0})
		c.expect(1)
		c.send(opSet, "k", "v")
		c.ping()
	})
	t.Run("append", func(t *testing.T) {
		l := stepLoop(t, ServerOptions{MaxMemory: limit})
		c := l.connect(TodaysGeneration)
		for range 10 {
			c.send(opAppend, "k", make([]byte, 4<<20))
		}
		c.expectClosed()
		if l.store.size > limit+limit/2 { // a grown value has room behind it
			t.Errorf("the store has %d bytes", l.store.size)
		}
	})
	t.Run("waits", func(t *testing.T) {
		l := stepLoop(t, ServerOptions{MaxMemory: limit})
		keys := []any{20_000}
		for i := range 20_000 {
			keys = append(keys, []byte{byte(i), byte(i >> 8), 'k'})
		}
		for range 5 {
			l.connect(TodaysGeneration).send(opWait, keys...)
		}
		if l.held > limit || l.refused[ReasonMemory] == 0 {
			t.Errorf("%d bytes are held, refused %v", l.held, l.refused)
		}
	})
	t.Run("answers not taken", func(t *testing.T) {
		l := stepLoop(t, ServerOptions{MaxMemory: limit})
		good, slow := l.connect(TodaysGeneration), l.connect(TodaysGeneration)
		good.send(opSet, "big", make([]byte, 4<<20))
		good.ping()
		slow.send(opMultiGet, 8, "big", "big", "big", "big", "big", "big", "big", "big")
		l.turn()
		good.ping()
		l.expectRefused(ReasonMemory)
	})
}

// Values that are big and come in pieces are stored without a further copy, and what comes behind them is not lost.
func TestBigValues(t *testing.T) {
	l := stepLoop(t, ServerOptions{})
	c := l.connect(TodaysGeneration)
	big := func(b byte) []byte { return bytes.Repeat([]byte{b}, 300_000) }
	for i, key := range []string{"a", "b", "a"} {
		c.write(slices.Concat(encode(TodaysGeneration, opSet, key, big(byte(i))), encode(TodaysGeneration, opAdd, "n", 1)))
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
	if l.store.size != 0 || l.held != 0 {
		t.Errorf("the empty store counts %d bytes, its connection %d", l.store.size, l.held)
	}
}
