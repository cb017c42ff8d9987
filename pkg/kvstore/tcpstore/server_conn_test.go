package tcpstore

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
)

func TestProtocolsSharePortAndKeys(t *testing.T) {
	_, addr := startServer(t, ServerOptions{})
	v1, v2 := dial(t, addr, ProtocolV1), dial(t, addr, ProtocolV2)
	clients := []*rawClient{v1, v2}
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
	v1.send(opNumKeys)
	v1.expect(3)
	v2.send(opDelete, "/k0")
	v2.expect(1)
	v1.send(opDelete, "/k0")
	v1.expect(0)
	v1.send(opGet, "/k0")
	v1.expect("")
	v2.send(opMultiGet, 3, "/k0", "/k1", "init/")
	v2.expect("", "w", "2")
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
	v2 := func(o op, fields ...any) []byte {
		return slices.Concat(handshake, encode(ProtocolV2, o, fields...))
	}
	v1 := func(o op, fields ...any) []byte { return encode(ProtocolV1, o, fields...) }
	long := strings.Repeat("k", maxKey+1)
	tests := []struct {
		name   string
		stream []byte
		want   Reason
	}{
		{"wrong magic number", encode(ProtocolV2, opValidate, uint32(0xdeadbeef), uint32(1)), ReasonMalformed},
		{"wrong magic number later", v2(opValidate, magicNumber+1), ReasonMalformed},
		{"HTTP", []byte("GET / HTTP/1.1\r\n\r\n"), ReasonUnknownOp},
		{"TLS", []byte("\x16\x03\x01\x02\x00\x01"), ReasonUnknownOp},
		{"first byte of an agent", []byte{0x80}, ReasonUnknownOp},
		{"WATCH_KEY", slices.Concat([]byte{7}, appendValue(nil, []byte("/k"))), ReasonUnknownOp},
		{"op 9 of protocol 1", []byte{9}, ReasonUnknownOp},
		{"PING of protocol 1", []byte{0x0d, 1, 2, 3, 4}, ReasonUnknownOp},
		{"op 13", v2(0x13), ReasonUnknownOp},
		{"queue key too long", v2(opQueuePush, long), ReasonMalformed},
		{"barrier on a word", v2(opBarrier, "word", 1), ReasonNotNumber},
		{"op ff", v2(0xff), ReasonUnknownOp},
		{"key too long", v2(opGet, long), ReasonMalformed},
		{"key too long, protocol 1", v1(opGet, long), ReasonMalformed},
		{"key of 2^63 bytes", v2(opSet, -1<<63), ReasonMalformed},
		{"key of 2^63 bytes, protocol 1", v1(opSet, -1<<63), ReasonMalformed},
		{"value too long", v2(opSet, "k", maxValue+1), ReasonMalformed},
		{"value of 2^64-1 bytes, protocol 1", v1(opSet, "k", -1), ReasonMalformed},
		{"too many keys", v2(opWait, maxKeys+1), ReasonMalformed},
		{"2^63 keys", v2(opMultiSet, -1<<63), ReasonMalformed},
		{"2^63 keys, protocol 1", v1(opCheck, -1<<63), ReasonMalformed},
		{"add to a word", v2(opAdd, "word", 1), ReasonNotNumber},
		{"add to nothing", v1(opAdd, "empty", 1), ReasonNotNumber},
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

func TestSlowReaderDelaysNoOther(t *testing.T) {
	l := stepLoop(t, ServerOptions{})
	good, slow := l.connect(ProtocolV2), l.connect(ProtocolV2)
	good.send(opSet, "big", bytes.Repeat([]byte("0123456789abcdef"), maxValue/16))
	good.ping()
	// The slow client asks for 8 GiB, sends another request behind that, and reads nothing.
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
	good.expect(replyNotReady) // the add behind the values has not run
	// The slow client then reads some of the values, which are unchanged.
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
		t.Errorf("%d turns for three times the share of one", turns)
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
	if len(lines) != 2 ||
		!strings.Contains(log.String(), `"reason":"unknown op","error":"op 0x42 of torch 1.x is not served"`) {
		t.Errorf("log:\n%s", log.String())
	}
}
