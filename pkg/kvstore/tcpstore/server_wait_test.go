package tcpstore

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWait(t *testing.T) {
	for _, p := range []Protocol{ProtocolV1, ProtocolV2} {
		t.Run(p.String(), func(t *testing.T) {
			l := stepLoop(t, ServerOptions{})
			waiter, setter := l.connect(p), l.connect(ProtocolV2)
			waiter.ping()
			// wait sends a WAIT behind a request whose reply shows that the WAIT has been read too.
			wait := func(keys ...any) {
				waiter.write(slices.Concat(
					encode(p, opCheck, 0),
					encode(p, opWait, append([]any{len(keys)}, keys...)...)))
				waiter.expect(replyReady)
			}

			wait("a", "b")
			setter.send(opSet, "a", "1")
			setter.send(opDelete, "a")
			setter.expect(1)
			setter.send(opSet, "b", "2") // each key has been set once now
			waiter.expect(replyStopWaiting)

			for i, store := range []func(key string){
				func(key string) { setter.send(opAdd, key, 1); setter.expect(1) },
				func(key string) { setter.send(opAppend, key, "x") },
				func(key string) { setter.send(opCompareSet, key, "", "x"); setter.expect("x") },
				func(key string) { setter.send(opMultiSet, 2, "y", "y", key, "x") },
			} {
				key := fmt.Sprint("key", i)
				wait(key)
				setter.send(opCompareSet, key, "no", "x") // stores nothing
				setter.expect("no")
				setter.send(opGet, key)
				setter.expect("")
				store(key)
				waiter.expect(replyStopWaiting)
			}
			waiter.ping()
			if n := l.store.Awaited(); n != 0 {
				t.Errorf("waits for %d keys are left", n)
			}
		})
	}
}

func TestCancelWait(t *testing.T) {
	l := stepLoop(t, ServerOptions{})
	waiter, setter := l.connect(ProtocolV2), l.connect(ProtocolV2)

	waiter.send(opWait, 1, "absent")
	waiter.send(opCancelWait)
	waiter.expect(replyWaitCanceled)
	setter.send(opSet, "absent", "")
	setter.ping()
	waiter.ping() // and no STOP_WAITING came before

	// STOP_WAITING and CANCEL_WAIT cross each other.
	waiter.write(append(encode(ProtocolV2, opCheck, 0), encode(ProtocolV2, opWait, 1, "late")...))
	waiter.expect(replyReady)
	setter.send(opSet, "late", "")
	setter.ping()
	waiter.send(opCancelWait)
	waiter.expect(replyStopWaiting, replyWaitCanceled)

	waiter.send(opCancelWait) // without a wait
	waiter.expect(replyWaitCanceled)
	waiter.ping()
}

func TestProtocolV1CancelsByNextRequest(t *testing.T) {
	l := stepLoop(t, ServerOptions{})
	waiter, setter := l.connect(ProtocolV1), l.connect(ProtocolV2)
	waiter.send(opWait, 2, "absent", "absent too")
	waiter.send(opAdd, "n", 5)
	waiter.expect(5)
	setter.send(opMultiSet, 2, "absent", "", "absent too", "")
	setter.ping()
	waiter.ping()
}

// A torch 1.13 client that sends its next request during a wait gets no reply to the wait, even if the wait was
// released in between.
func TestSilentCancelCrossesRelease(t *testing.T) {
	l := stepLoop(t, ServerOptions{})
	c := l.connect(ProtocolV1)
	c.send(opAdd, "init", 1)
	c.expect(1)
	c.send(opWait, 1, "key")

	// The release and the next request come before the next step of the loop.
	l.store.Set("key", []byte("value"))
	if len(l.released) != 1 {
		t.Fatal("the wait was not released")
	}
	if _, err := unix.Write(c.nc.(*steppedWire).fd, encode(ProtocolV1, opAdd, "n", 7)); err != nil {
		t.Fatal(err)
	}
	c.expect(7)
	c.ping()
}

func TestRequestsBehindAWait(t *testing.T) {
	l := stepLoop(t, ServerOptions{})
	waiter, setter := l.connect(ProtocolV2), l.connect(ProtocolV2)
	many := bytes.Repeat(encode(ProtocolV2, opGet, "k"), 1000) // more than one read takes
	waiter.write(slices.Concat(
		encode(ProtocolV2, opSet, "n", "0"),
		encode(ProtocolV2, opCheck, 0),
		encode(ProtocolV2, opWait, 1, "k"),
		encode(ProtocolV2, opMultiGet, 2, "k", "n"),
		encode(ProtocolV2, opAdd, "n", 1),
		many))
	waiter.expect(replyReady)
	setter.send(opAdd, "n", 10) // arrives before the waiter's own add
	setter.expect(10)
	setter.send(opSet, "k", "v")
	waiter.expect(replyStopWaiting, "v", "10", 11)
	for range 1000 {
		waiter.expect("v")
	}
	waiter.ping()
}

func TestTooManyRequestsBehindAWait(t *testing.T) {
	s, addr := startServer(t, ServerOptions{MaxMemory: 4 << 20})
	c := dial(t, addr, ProtocolV2)
	c.send(opWait, 1, "absent")
	// The server may end the connection before it has read all of this.
	c.nc.Write(bytes.Repeat(encode(ProtocolV2, opNumKeys), 4<<20))
	c.expectClosed()
	expectRefused(t, s, ReasonMemory)
}

func TestClientGoneWhileItWaits(t *testing.T) {
	l := stepLoop(t, ServerOptions{})
	v1, v2, queued := l.connect(ProtocolV1), l.connect(ProtocolV2), l.connect(ProtocolV2)
	barrier := l.connect(ProtocolV2)
	for _, c := range []*rawClient{v1, v2, queued} {
		c.send(opWait, 2, "a", "b")
	}
	barrier.send(opBarrier, "c", 2)
	queued.write(bytes.Repeat(encode(ProtocolV2, opNumKeys), 10_000))
	for _, c := range []*rawClient{v1, v2, queued, barrier} {
		c.close()
	}
	if l.open != 0 || l.store.Awaited() != 0 || l.held != 0 || l.stalls.Len() != 0 {
		t.Errorf("%d connections, waits for %d keys, %d bytes and %d partial requests are left",
			l.open, l.store.Awaited(), l.held, l.stalls.Len())
	}
}
