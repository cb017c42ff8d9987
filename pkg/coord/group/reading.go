package group

import (
	"net"
	"sync/atomic"
	"time"
)

// Without a secret, anybody who reaches this process may send frames. So the memory for incoming frames is limited, and
// the bytes of a frame must keep coming.

// maxLarge is how many raft messages above maxSmall are read at the same time. A group has one leader, and perhaps a
// former one.
const maxLarge = 4

// reading counts the large frames that are being read.
type reading struct {
	messages atomic.Int32 // above maxSmall
	snapshot atomic.Bool  // one above maxMessage is being read
}

// admit reports whether a frame may be read now. The caller calls done after reading it.
func (r *reading) admit(kind frameKind, size int) (done func(), ok bool) {
	none := func() {}
	switch {
	case kind != frameRaft:
		return none, size <= maxHello
	case size <= maxSmall:
		return none, true
	case size <= maxMessage:
		if r.messages.Add(1) > maxLarge {
			r.messages.Add(-1)
			return none, false
		}
		return func() { r.messages.Add(-1) }, true
	case size <= maxFrame && r.snapshot.CompareAndSwap(false, true):
		return func() { r.snapshot.Store(false) }, true
	}
	return none, false
}

// next reads the next frame of a member's connection, whose read deadline applies to the frame's first byte.
func (r *reading) next(nc net.Conn) (frame, error) {
	done := func() {}
	defer func() { done() }()
	return readAdmitted(&steadyReader{nc: nc}, func(kind frameKind, size int) (ok bool) {
		done, ok = r.admit(kind, size)
		return ok
	})
}

// steadyReader reads from a connection. After the first read, bytes must keep coming.
type steadyReader struct {
	nc    net.Conn
	begun bool
}

func (r *steadyReader) Read(b []byte) (int, error) {
	if r.begun {
		r.nc.SetReadDeadline(time.Now().Add(2 * sendTimeout))
	}
	r.begun = true
	return r.nc.Read(b)
}
