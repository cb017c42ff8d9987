package tcpstore

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestStalledRequests(t *testing.T) {
	v2 := func(o op, fields ...any) []byte {
		return slices.Concat(handshake, encode(ProtocolV2, o, fields...))
	}
	tests := []struct {
		name    string
		partial []byte
	}{
		{"00", handshake[:1]},
		{"part of a handshake", handshake[:3]},
		{"op of protocol 1", []byte{3}},
		{"op", v2(opSet)},
		{"part of a length", v2(opSet, "k")[:10]},
		{"part of a key", v2(opSet, "key")[:16]},
		{"part of a value", v2(opSet, "k", "value")[:26]},
		{"most of a value", v2(opSet, "k", make([]byte, maxValue))[:maxValue]},
		{"first key of two", v2(opWait, 2, "a")},
		{"part of a ping", v2(opPing)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := stepLoop(t, ServerOptions{})
				c := l.connect(protocolUnknown)
				c.write(tt.partial)
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
