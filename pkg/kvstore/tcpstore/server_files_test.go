package tcpstore

import (
	"net"
	"testing"
)

// A client that sends a request gets none of the last files. If its connection has such a file, the connection moves to
// a lower one that has become free. Agents and unused connections may have the last files.
func TestWorkersLeaveFiles(t *testing.T) {
	var agents int
	l := stepLoop(t, ServerOptions{Agents: func(nc net.Conn) { agents++; _ = nc.Close() }})
	first, second := l.connect(ProtocolV2), l.connect(ProtocolV1)
	first.ping()
	second.ping()
	lowest, highest := l.fileOf(1), l.fileOf(2)
	l.workerFiles = highest + 1
	refused, agent, unused := l.connect(ProtocolV2), l.connect(protocolUnknown), l.connect(protocolUnknown)
	refused.write(handshake[:1])
	refused.expectClosed()
	l.expectRefused(ReasonFiles)
	agent.write([]byte{0xe5})
	if agents != 1 {
		t.Errorf("%d agents", agents)
	}
	if from := l.fileOf(5); from <= highest {
		t.Fatalf("the unused connection has file %d", from)
	}
	first.close() // its two files are free
	unused.write(handshake)
	if at := l.fileOf(5); at > highest {
		t.Errorf("the connection has file %d, and %d is free", at, lowest)
	}
	unused.p = ProtocolV2
	unused.ping()
	second.ping()
}

// fileOf returns the file of the connection that was accepted as the nth one, or -1.
func (l steppedLoop) fileOf(nth uint64) int {
	for fd, c := range l.conns {
		if c != nil && c.number == nth {
			return fd
		}
	}
	return -1
}
