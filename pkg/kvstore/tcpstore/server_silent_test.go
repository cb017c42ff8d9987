package tcpstore

import "testing"

// Beyond maxSilent, the oldest silent connections are closed.
func TestTooManySilentConnections(t *testing.T) {
	l := stepLoop(t, ServerOptions{})
	if l.maxSilent < 1 || l.maxSilent > mostSilent {
		t.Errorf("%d silent connections are allowed", l.maxSilent)
	}
	l.maxSilent = 32
	used := l.connect(ProtocolV2)
	used.ping()
	var all []*rawClient
	for range 32 {
		all = append(all, l.connect(protocolUnknown))
	}
	last := l.connect(ProtocolV2)
	for _, c := range all[:3] {
		c.expectClosed()
	}
	if l.open != 31 || l.silent.Len() != 29 {
		t.Errorf("%d connections, %d silent", l.open, l.silent.Len())
	}
	last.ping()
	used.ping()
}
