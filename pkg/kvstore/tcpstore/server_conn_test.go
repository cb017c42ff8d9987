package tcpstore

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

func TestProtocolsSharePortAndKeys(t *testing.T) {
	_, addr := startServer(t, ServerOptions{})
	first, today := dial(t, addr, ProtocolV1), dial(t, addr, ProtocolV2)
	clients := []*rawClient{first, today}
	// The first request of every torch worker.
	for i, c := range clients {
		c.send(opAdd, "init/", 1)
		c.expect(i + 1)
	}
	for i, c := range clients {
		key, other := fmt.Sprint("/k", i), clients[1-i]
		c.send(opSet, key, "v")
		c.ping()
		other.send(opWait, 1, key)
		other.expect(replyStopWaiting)
		other.send(opGet, key)
		other.expect("v")
		other.send(opCheck, 2, key, "init/")
		other.expect(replyReady)
		other.send(opCompareSet, key, "v", "w")
		other.expect("w")
		c.send(opCompareSet, key, "v", "x")
		c.expect("w")
	}
	first.send(opNumKeys)
	first.expect(3)
	today.send(opDelete, "/k0")
	today.expect(1)
	first.send(opDelete, "/k0")
	first.expect(0)
	first.send(opGet, "/k0")
	first.expect("")
	today.send(opMultiGet, 3, "/k0", "/k1", "init/")
	today.expect("", "w", "2")
}

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

// expectRefused checks that the server refused one connection, for the given reason.
func expectRefused(t *testing.T, s *Server, reason Reason) {
	t.Helper()
	if err := s.Close(); err != nil { // so that the count is final
		t.Error(err)
	}
	if diff := cmp.Diff(map[Reason]uint64{reason: 1}, s.Stats().Refused); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
}

func TestBadInput(t *testing.T) {
	today := func(o op, fields ...any) []byte {
		return slices.Concat(handshake, encode(ProtocolV2, o, fields...))
	}
	first := func(o op, fields ...any) []byte { return encode(ProtocolV1, o, fields...) }
	long := strings.Repeat("k", maxKey+1)
	tests := []struct {
		name   string
		stream []byte
		want   Reason
	}{
		{"wrong magic number", encode(ProtocolV2, opValidate, uint32(0xdeadbeef), uint32(1)), ReasonMalformed},
		{"wrong magic number later", today(opValidate, magicNumber+1), ReasonMalformed},
		{"HTTP", []byte("GET / HTTP/1.1\r\n\r\n"), ReasonUnknownOp},
		{"TLS", []byte("\x16\x03\x01\x02\x00\x01"), ReasonUnknownOp},
		{"first byte of an agent", []byte{0x80}, ReasonUnknownOp},
		{"WATCH_KEY", slices.Concat([]byte{7}, appendValue(nil, []byte("/k"))), ReasonUnknownOp},
		{"op 9 of the first generation", []byte{9}, ReasonUnknownOp},
		{"PING of the first generation", []byte{0x0d, 1, 2, 3, 4}, ReasonUnknownOp},
		{"op 13", today(0x13), ReasonUnknownOp},
		{"queue key too long", today(opQueuePush, long), ReasonMalformed},
		{"barrier on a word", today(opBarrier, "word", 1), ReasonNotNumber},
		{"op ff", today(0xff), ReasonUnknownOp},
		{"key too long", today(opGet, long), ReasonMalformed},
		{"key too long, first generation", first(opGet, long), ReasonMalformed},
		{"key of 2^63 bytes", today(opSet, -1<<63), ReasonMalformed},
		{"key of 2^63 bytes, first generation", first(opSet, -1<<63), ReasonMalformed},
		{"value too long", today(opSet, "k", maxValue+1), ReasonMalformed},
		{"value of 2^64-1 bytes, first generation", first(opSet, "k", -1), ReasonMalformed},
		{"too many keys", today(opWait, maxKeys+1), ReasonMalformed},
		{"2^63 keys", today(opMultiSet, -1<<63), ReasonMalformed},
		{"2^63 keys, first generation", first(opCheck, -1<<63), ReasonMalformed},
		{"add to a word", today(opAdd, "word", 1), ReasonNotNumber},
		{"add to nothing", first(opAdd, "empty", 1), ReasonNotNumber},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, addr := startServer(t, ServerOptions{})
			other := dial(t, addr, ProtocolV1)
			other.send(opSet, "word", "word")
			other.send(opSet, "empty", "")
			other.ping()

			bad := dial(t, addr, protocolUnknown)
			bad.nc.Write(tt.stream) // may fail: the server stops reading
			bad.expectClosed()

			other.ping()
			dial(t, addr, ProtocolV2).ping()
			expectRefused(t, s, tt.want)
		})
	}
}

func TestRequestsBeforeABadOneAreAnswered(t *testing.T) {
	s, addr := startServer(t, ServerOptions{})
	c := dial(t, addr, ProtocolV2)
	c.write(append(encode(ProtocolV2, opAdd, "n", 1), 0xff))
	c.expect(1)
	c.expectClosed()
	c = dial(t, addr, ProtocolV1)
	c.send(opGet, "n")
	c.expect("1")
	expectRefused(t, s, ReasonUnknownOp)
}

func TestStalledRequests(t *testing.T) {
	today := func(o op, fields ...any) []byte {
		return slices.Concat(handshake, encode(ProtocolV2, o, fields...))
	}
	tests := []struct {
		name string
		half []byte
	}{
		{"00", handshake[:1]},
		{"half a handshake", handshake[:3]},
		{"op of the first generation", []byte{3}},
		{"op", today(opSet)},
		{"half a length", today(opSet, "k")[:10]},
		{"half a key", today(opSet, "key")[:16]},
		{"half a value", today(opSet, "k", "value")[:26]},
		{"most of a value", today(opSet, "k", make([]byte, maxValue))[:maxValue]},
		{"first key of two", today(opWait, 2, "a")},
		{"half a ping", today(opPing)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := stepLoop(t, ServerOptions{})
				c := l.connect(protocolUnknown)
				c.write(tt.half)
				if wait := l.nextStall(); wait != 30*time.Second {
					t.Errorf("the loop would sleep %v, want 30s", wait)
				}
				<-time.After(30*time.Second - 1)
				l.step()
				if l.open != 1 {
					t.Fatal("closed before its time")
				}
				<-time.After(1)
				c.expectClosed()
				l.expectRefused(ReasonStalled)
			})
		})
	}
}

// A client may be slow, but not too slow: a byte now and then does not keep a partial request alive.
func TestTrickledRequest(t *testing.T) {
	tests := []struct {
		name  string
		piece int // bytes per second
		ends  bool
	}{
		{"too slow", stallShare/30 - 10, true},
		{"just fast enough", stallShare/29 + 1, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := stepLoop(t, ServerOptions{})
				c := l.connect(ProtocolV2)
				request := encode(ProtocolV2, opSet, "k", make([]byte, 5*stallShare))
				for len(request) > 0 && l.open > 0 {
					n := min(tt.piece, len(request))
					c.write(request[:n])
					request = request[n:]
					<-time.After(time.Second)
				}
				l.step()
				if ended := l.open == 0; ended != tt.ends {
					t.Errorf("closed: %v, want %v; %d bytes were left to send", ended, tt.ends, len(request))
				}
			})
		})
	}
}

// After a suspension, a process gives its clients the time that it missed.
func TestSuspendedServerExpiresNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := stepLoop(t, ServerOptions{})
		c := l.connect(ProtocolV2)
		c.write(encode(ProtocolV2, opAdd, "k", 1)[:5])
		<-time.After(20 * time.Second)
		l.expireStalls(time.Hour, false)
		<-time.After(29*time.Second + time.Hour - 20*time.Second)
		l.step()
		if l.open != 1 {
			t.Fatal("closed before its time")
		}
		l.expireStalls(time.Second-1, false) // too short for a suspension
		<-time.After(time.Second)
		c.expectClosed()
	})
}

func TestIdleConnectionsStayOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := stepLoop(t, ServerOptions{StallTimeout: time.Second})
		silent := l.connect(protocolUnknown) // torch 1.13's watch connection
		var clients []*rawClient
		for _, p := range []Protocol{ProtocolV1, ProtocolV2} {
			idle, halves, waiting := l.connect(p), l.connect(p), l.connect(p)
			request := encode(p, opSet, "k", "v")
			halves.write(request[:7])
			<-time.After(900 * time.Millisecond)
			halves.write(request[7:])
			waiting.send(opWait, 1, "late")
			clients = append(clients, idle, halves, waiting)
		}
		queued := l.connect(ProtocolV2)
		queued.write(append(encode(ProtocolV2, opWait, 1, "late"), byte(opSet))) // a partial request behind a wait
		<-time.After(1000 * time.Hour)
		l.step()
		if wait := l.nextStall(); wait >= 0 {
			t.Errorf("the loop would sleep only %v", wait)
		}
		for i, c := range clients {
			if i%3 != 2 {
				c.ping()
			}
		}
		clients[0].send(opSet, "late", "")
		for _, c := range []*rawClient{clients[2], clients[5], queued} {
			c.expect(replyStopWaiting)
		}
		if l.open != 8 {
			t.Errorf("%d connections open, want 8", l.open)
		}
		<-time.After(time.Second)
		queued.expectClosed() // now its partial request is due
		silent.p = ProtocolV1
		silent.ping()
	})
}

func TestClientGoneWhileItWaits(t *testing.T) {
	l := stepLoop(t, ServerOptions{})
	first, today, queued := l.connect(ProtocolV1), l.connect(ProtocolV2), l.connect(ProtocolV2)
	barrier := l.connect(ProtocolV2)
	for _, c := range []*rawClient{first, today, queued} {
		c.send(opWait, 2, "a", "b")
	}
	barrier.send(opBarrier, "c", 2)
	queued.write(bytes.Repeat(encode(ProtocolV2, opNumKeys), 10_000))
	for _, c := range []*rawClient{first, today, queued, barrier} {
		c.close()
	}
	if l.open != 0 || l.store.Awaited() != 0 || l.held != 0 || l.stalls.Len() != 0 {
		t.Errorf("%d connections, waits for %d keys, %d bytes and %d half requests are left",
			l.open, l.store.Awaited(), l.held, l.stalls.Len())
	}
}

func TestSlowReaderDelaysNoOther(t *testing.T) {
	l := stepLoop(t, ServerOptions{})
	good, slow := l.connect(ProtocolV2), l.connect(ProtocolV2)
	good.send(opSet, "big", bytes.Repeat([]byte("0123456789abcdef"), maxValue/16))
	good.ping()
	// It asks for 8 GiB and sends another request behind that, and reads nothing.
	keys := []any{1000}
	for range 1000 {
		keys = append(keys, "big")
	}
	slow.write(encode(ProtocolV2, opMultiGet, keys...))
	slow.write(encode(ProtocolV2, opAdd, "n", 1))
	good.send(opSet, "big", "small")
	good.send(opGet, "big")
	good.expect("small")
	good.send(opCheck, 1, "n")
	good.expect(replyNotReady) // the server does not work in advance
	// It then reads some of the values, and all are as they were.
	for range 3 {
		slow.expect(string(bytes.Repeat([]byte("0123456789abcdef"), maxValue/16)))
	}
	slow.close()
	if l.open != 1 || l.held > 100 {
		t.Errorf("%d connections hold %d bytes, want 1 and next to nothing", l.open, l.held)
	}
}

// A busy client yields to the others, and continues later.
func TestFairTurns(t *testing.T) {
	l := stepLoop(t, ServerOptions{StallTimeout: time.Second})
	busy := l.connect(ProtocolV2)
	busy.ping()
	conn := l.conns[len(l.conns)-1]
	set := encode(ProtocolV2, opSet, "k", make([]byte, 1000))
	conn.in = append(bytes.Repeat(set, 3*turnSize/len(set)), encode(ProtocolV2, opAdd, "n", 1)...)
	if err := conn.process(conn.in, true); err != nil {
		t.Fatal(err)
	}
	turns := 1
	for ; len(l.yielded) > 0; turns++ {
		if !conn.yielded || conn.idle() || conn.stall != nil {
			t.Fatal("the connection has more to do, and does not know")
		}
		if _, err := l.loop.step(-1); err != nil { // it must not sleep now
			t.Fatal(err)
		}
	}
	if turns != 3 && turns != 4 {
		t.Errorf("%d turns for thrice the share of one", turns)
	}
	busy.expect(1)
	busy.ping()
}

// expectRefused checks that the loop refused one connection, for the given reason.
func (l steppedLoop) expectRefused(reason Reason) {
	l.t.Helper()
	if diff := cmp.Diff(map[Reason]uint64{reason: 1}, l.refused); diff != "" {
		l.t.Errorf("refused (-want +got):\n%s", diff)
	}
}

func TestOneLogLinePerReason(t *testing.T) {
	var log bytes.Buffer
	s, addr := startServer(t, ServerOptions{Logger: zerolog.New(&log).Level(zerolog.WarnLevel)})
	for range 3 {
		c := dial(t, addr, ProtocolV1)
		c.write([]byte{0x42})
		c.expectClosed()
		c = dial(t, addr, ProtocolV1)
		c.send(opGet, -1)
		c.expectClosed()
	}
	s.Close()
	if diff := cmp.Diff(map[Reason]uint64{ReasonUnknownOp: 3, ReasonMalformed: 3}, s.Stats().Refused); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(log.String(), `"reason":"unknown op","error":"op 0x42 of torch 1.x is not served"`) {
		t.Errorf("log:\n%s", log.String())
	}
}

// A torch 1.13 client that continues without the reply to its wait does not get that reply before the one to its next
// request, even if the wait was released in between.
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
