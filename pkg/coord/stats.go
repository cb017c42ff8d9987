package coord

import (
	"encoding/binary"
	"sync/atomic"
)

// Stats is what a Server counts.
type Stats struct {
	Conns     int // connections open now
	Sessions  int // sessions that there are, those of Local apart
	Keys      int // keys that there are
	Revision  Revision
	Accepted  uint64 // connections served since the start
	Refused   uint64 // connections refused for a Reason
	Dropped   uint64 // connections closed since their requests and answers took too much memory
	Memory    int64  // about how many bytes count towards MaxMemory
	Malformed uint64 // connections closed since what came was not of the protocol, or not in time
	Received  Traffic
	Sent      Traffic
}

// Stats returns the server's counters.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Received, stats.Sent = s.received.traffic(), s.sent.traffic()
	stats.Memory = s.core.budget.stored + s.inflight
	stats.Conns, stats.Sessions, stats.Keys, stats.Revision = len(s.conns), s.remote, len(s.core.entries), s.core.revision
	return stats
}

// Traffic is what has gone over connections in one direction, whole messages only.
type Traffic struct {
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
}

// Since returns what has come since before.
func (t Traffic) Since(before Traffic) Traffic {
	return Traffic{Messages: t.Messages - before.Messages, Bytes: t.Bytes - before.Bytes}
}

// meter counts traffic.
type meter struct{ messages, bytes atomic.Uint64 }

func (m *meter) count(messages, bytes int) {
	m.messages.Add(uint64(messages))
	m.bytes.Add(uint64(bytes))
}

func (m *meter) traffic() Traffic { return Traffic{Messages: m.messages.Load(), Bytes: m.bytes.Load()} }

// countFrames counts the messages in b: frames, or a refusal behind the preamble.
func countFrames(b []byte) (n int) {
	for len(b) > frameHeader {
		size := frameHeader + int64(binary.BigEndian.Uint32(b))
		b = b[min(size, int64(len(b))):]
		n++
	}
	return n
}
