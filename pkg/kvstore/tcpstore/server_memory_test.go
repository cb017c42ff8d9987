package tcpstore

import (
	"bytes"
	"slices"
	"testing"
)

// The memory of all clients together is limited, and the client that uses most pays for it.
func TestMemoryBound(t *testing.T) {
	const limit = 16 << 20
	partial := func(n int) []byte {
		return encode(ProtocolV2, opSet, "k", make([]byte, maxValue))[:n]
	}
	t.Run("partial requests", func(t *testing.T) {
		l := stepLoop(t, ServerOptions{MaxMemory: limit})
		good := l.connect(ProtocolV2)
		good.write(encode(ProtocolV2, opSet, "mine", make([]byte, 1000))[:500])
		var bad []*rawClient
		for range 10 {
			c := l.connect(ProtocolV2)
			c.write(partial(3 << 20))
			bad = append(bad, c)
		}
		if l.held > limit/2 {
			t.Errorf("%d bytes are held, want %d at most", l.held, limit/2)
		}
		if ended := 11 - l.open; ended < 8 || l.refused[ReasonMemory] != uint64(ended) {
			t.Errorf("%d connections ended, refused %v", ended, l.refused)
		}
		good.write(make([]byte, 521))
		good.send(opCheck, 1, "mine")
		good.expect(replyReady)
		for _, c := range bad {
			c.close()
		}
		if l.held > 100 {
			t.Errorf("one connection at rest holds %d bytes", l.held)
		}
	})
	t.Run("a small bound", func(t *testing.T) {
		l := stepLoop(t, ServerOptions{MaxMemory: 1 << 20})
		hog, good := l.connect(ProtocolV2), l.connect(ProtocolV2)
		hog.send(opWait, 1, "absent")
		hog.write(partial(260 << 10))
		good.send(opSet, "mine", make([]byte, 200<<10))
		good.ping()
		hog.expectClosed()
	})
	t.Run("keys", func(t *testing.T) {
		l := stepLoop(t, ServerOptions{MaxMemory: limit})
		c := l.connect(ProtocolV2)
		n := 0
		for ; l.open > 0 && n < 100_000; n++ {
			key := []byte{byte(n), byte(n >> 8), byte(n >> 16)}
			c.send(opSet, key, bytes.Repeat(key, 1000))
		}
		c.expectClosed()
		l.expectRefused(ReasonMemory)
		if l.store.Size() > limit/2+100 || l.store.Size() < limit/2-10_000 {
			t.Errorf("the store is full with %d bytes, want about %d", l.store.Size(), limit/2)
		}
		// Reading and deleting still work.
		c = l.connect(ProtocolV2)
		c.send(opDelete, []byte{0, 0, 0})
		c.expect(1)
		c.send(opSet, "k", "v")
		c.ping()
	})
	t.Run("append", func(t *testing.T) {
		l := stepLoop(t, ServerOptions{MaxMemory: limit})
		c := l.connect(ProtocolV2)
		for range 10 {
			c.send(opAppend, "k", make([]byte, 1<<20))
		}
		c.expectClosed()
		l.expectRefused(ReasonMemory)
		if l.store.Size() > limit/2 {
			t.Errorf("the store has %d bytes", l.store.Size())
		}
	})
	t.Run("waits", func(t *testing.T) {
		l := stepLoop(t, ServerOptions{MaxMemory: limit})
		keys := []any{20_000}
		for i := range 20_000 {
			keys = append(keys, []byte{byte(i), byte(i >> 8), 'k'})
		}
		for range 5 {
			l.connect(ProtocolV2).send(opWait, keys...)
		}
		if l.held > limit/2 || l.refused[ReasonMemory] == 0 {
			t.Errorf("%d bytes are held, refused %v", l.held, l.refused)
		}
	})
	t.Run("answers not taken", func(t *testing.T) {
		l := stepLoop(t, ServerOptions{MaxMemory: limit})
		good, slow := l.connect(ProtocolV2), l.connect(ProtocolV2)
		for _, key := range []string{"a", "b", "c"} {
			good.send(opSet, key, make([]byte, 2<<20))
			good.ping()
			slow.send(opGet, key)
			slow.send(opGet, key)
		}
		if l.open != 2 {
			t.Fatalf("refused: %v", l.refused)
		}
		for _, key := range []string{"a", "b", "c"} { // new values, while some of the old ones are not read yet
			good.send(opSet, key, make([]byte, 2<<20))
			good.ping()
		}
		other := l.connect(ProtocolV2)
		for range 2 {
			other.send(opMultiGet, 3, "a", "b", "c")
		}
		good.ping()
		if l.held+l.pins.size > limit/2 {
			t.Errorf("%d bytes and values of %d are held", l.held, l.pins.size)
		}
	})
	t.Run("small answers not taken", func(t *testing.T) {
		l := stepLoop(t, ServerOptions{MaxMemory: limit})
		good, slow := l.connect(ProtocolV2), l.connect(ProtocolV2)
		good.send(opSet, "k", make([]byte, 30_000))
		keys := []any{100_000}
		for range 100_000 {
			keys = append(keys, "k")
		}
		slow.send(opMultiGet, keys...)
		l.expectRefused(ReasonMemory)
		good.ping()
	})
	t.Run("one answer for many", func(t *testing.T) {
		l := stepLoop(t, ServerOptions{MaxMemory: limit})
		value := string(make([]byte, 1<<20))
		setter := l.connect(ProtocolV2)
		setter.send(opSet, "k", value)
		setter.ping()
		var readers []*rawClient
		for range 50 {
			c := l.connect(ProtocolV2)
			c.send(opGet, "k")
			readers = append(readers, c)
		}
		for _, c := range readers {
			c.expect(value)
		}
		if l.open != 51 || l.pins.size != 0 || len(l.pins.values) != 0 || l.held > 100*51 {
			t.Errorf("%d connections are open, %d values of %d bytes are pinned, %d bytes held",
				l.open, len(l.pins.values), l.pins.size, l.held)
		}
	})
	t.Run("at rest", func(t *testing.T) {
		l := stepLoop(t, ServerOptions{})
		big := make([]byte, 1<<20)
		c := l.connect(ProtocolV2)
		c.send(opMultiSet, 4, "a", big, "a", big, "a", big, "a", "")
		keys := []any{100_000}
		for range 100_000 {
			keys = append(keys, "a")
		}
		c.send(opCheck, keys...)
		c.expect(replyReady)
		if conn := l.conns[len(l.conns)-1]; l.held > 100 || conn.dec.req.bytes != nil || cap(conn.dec.req.keys) > 256 {
			t.Errorf("the connection holds %d bytes, and of its last request %d and %d keys",
				l.held, len(conn.dec.req.bytes), cap(conn.dec.req.keys))
		}
	})
	t.Run("a value behind much else", func(t *testing.T) {
		l := stepLoop(t, ServerOptions{})
		c := l.connect(ProtocolV2)
		c.write(slices.Concat(
			encode(ProtocolV2, opMultiSet, 2, "a", make([]byte, 4<<20), "a", ""),
			encode(ProtocolV2, opSet, "k", make([]byte, 100_000))))
		c.ping()
		if value, _ := l.store.Get("k"); len(value) != 100_000 || l.conns[len(l.conns)-1].in != nil {
			t.Errorf("a value of %d bytes", len(value))
		}
		c.send(opQueuePush, "q", make([]byte, 100_000))
		c.ping()
	})
}
