package coord

import (
	"encoding/binary"
	"sync/atomic"
)

// Stats are the counters of a Server.
type Stats struct {
	Conns     int // open connections
	Pending   int // open connections without a session
	Sessions  int // current sessions, without local ones
	Keys      int // current keys
	Revision  Revision
	Accepted  uint64 // connections since the start
	Refused   uint64 // connections refused for a Reason
	Dropped   uint64 // connections closed because their requests and answers used too much memory
	Memory    int64  // approximate bytes that count towards MaxMemory
	Malformed uint64 // connections closed because their data was malformed or late
	Received  Traffic
	Sent      Traffic
}

// Limits are the maximum values for a Server. Sessions and keys share MaxMemory, so fewer sessions leave room for more
// keys, and vice versa.
type Limits struct {
	Pending, Sessions, Keys int
	Memory                  int64 // ServerOptions.MaxMemory
}

// Limits returns the server's limits.
func (s *Server) Limits() Limits {
	stored := s.core.budget.limit
	return Limits{
		Pending: s.maxPending, Sessions: int((stored - stored/8) / sessionSize), Keys: int(stored / entrySize),
		Memory: s.opts.MaxMemory,
	}
}

// Stats returns the server's counters.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Received, stats.Sent = s.received.traffic(), s.sent.traffic()
	stats.Memory = s.core.budget.stored + s.inflight
	stats.Conns, stats.Sessions = len(s.conns), s.remote
	stats.Pending = s.pending.Len()
	stats.Keys, stats.Revision = len(s.core.entries), s.core.revision
	return stats
}

// Traffic counts the complete messages sent over connections in one direction.
type Traffic struct {
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
}

// Since returns the traffic since an earlier count.
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

// countFrames returns the number of messages in b. A preamble and the frame behind it count as one.
func countFrames(b []byte) (n int) {
	for len(b) > frameHeader {
		size := frameHeader + int64(binary.BigEndian.Uint32(b))
		b = b[min(size, int64(len(b))):]
		n++
	}
	return n
}
