package coord

import (
	"encoding/binary"
	"sync/atomic"
)

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
