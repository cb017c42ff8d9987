package coord

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// inflight is the memory, in bytes, that a connection uses for requests and answers in flight. server.mu guards all
// fields.
type inflight struct {
	receiving int64 // of a request that is incomplete or is being handled
	sending   int64 // of the data that is being written
	counted   int64 // this connection's share of Server.inflight
	done      bool  // the connection is ending and no longer counts
	dropped   bool  // the server closed the connection because it used too much memory
}

// minDropBytes is how many bytes a connection must use before the server closes it in favor of another connection.
const minDropBytes = 256 << 10

// account updates the bytes that c uses. If all connections together use too much, the server closes the connection
// that uses most; account returns an error if that connection is c. The client of a closed connection reconnects and
// resumes its session. server.mu is held.
func (c *conn) account() error {
	s, u := c.server, &c.inflight
	if u.done {
		return c.dropErr()
	}
	used := u.receiving + u.sending + int64(cap(c.out))
	s.inflight += used - u.counted
	u.counted = used
	for s.inflight > s.opts.MaxMemory/2 {
		largest := c
		for other := range s.conns {
			if other.inflight.counted > largest.inflight.counted {
				largest = other
			}
		}
		if largest != c && largest.inflight.counted < minDropBytes {
			largest = c
		}
		s.stats.Dropped++
		s.opts.Logger.Warn().Stringer("from", largest.nc.RemoteAddr()).Int64("bytes", largest.inflight.counted).
			Msg("closed an agent's connection: its requests and answers use too much of the store's memory")
		largest.drop()
	}
	return c.dropErr()
}

// dropErr returns errDropped if c was dropped. server.mu is held.
func (c *conn) dropErr() error {
	if c.inflight.dropped {
		return errDropped
	}
	return nil
}

// errDropped ends a connection that uses too much memory.
var errDropped = errors.New("its requests and answers use too much memory")

// drop closes c and stops counting it. server.mu is held.
func (c *conn) drop() {
	c.stopCounting()
	c.inflight.dropped = true
	c.out, c.ready, c.closing = nil, nil, true
	c.nc.Close() // makes run return
}

// stopCounting removes c from the accounting for good. server.mu is held.
func (c *conn) stopCounting() {
	c.server.inflight -= c.inflight.counted
	c.inflight.counted, c.inflight.done = 0, true
}

// smallRequest is the size up to which a request is neither counted nor subject to StallTimeout.
const smallRequest = 4 << 10

// readRequest reads one frame from a client that has a session. A large frame uses no more memory than the store has,
// and each 64 KiB of it must arrive within StallTimeout. The caller must no longer use the memory of the previous
// request.
func (c *conn) readRequest(scratch []byte) (kind, []byte, error) {
	if c.largeRequest {
		c.largeRequest = false
		if err := c.countReceiving(0); err != nil {
			return 0, nil, err
		}
	}
	head := scratch[:frameHeader]
	if _, err := io.ReadFull(c.nc, head); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head)
	if size <= smallRequest || size > maxFrame {
		k, body, err := readBody(c.nc, size, maxFrame)
		if err == nil {
			c.server.received.count(1, frameHeader+int(size))
		}
		return k, body, err
	}
	c.largeRequest = true
	body, err := c.readLargeBody(int(size))
	if err != nil {
		return 0, nil, err
	}
	c.server.received.count(1, frameHeader+len(body))
	c.setReadTimeout(0)
	return kind(body[0]), body[1:], nil
}

// readLargeBody reads the body of a frame. It allocates at most four times the bytes that have arrived. The values of a
// commit are copied from the body.
func (c *conn) readLargeBody(size int) ([]byte, error) {
	const step = 64 << 10
	b := make([]byte, 0, min(size, step))
	for {
		if err := c.countReceiving(int64(2 * cap(b))); err != nil {
			return nil, err
		}
		c.setReadTimeout(c.server.opts.StallTimeout)
		n, err := io.ReadFull(c.nc, b[len(b):min(cap(b), len(b)+step)])
		if b = b[:len(b)+n]; err != nil {
			return nil, fmt.Errorf("frame ends after %d of %d bytes: %w", len(b), size, err)
		}
		switch len(b) {
		case size:
			return b, nil
		case cap(b):
			bigger := make([]byte, len(b), min(size, 2*len(b)))
			copy(bigger, b)
			b = bigger
		}
	}
}

// countReceiving sets the bytes that the current request uses.
func (c *conn) countReceiving(n int64) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.inflight.receiving = n
	return c.account()
}

// setReadTimeout sets the time within which the next read must complete; 0 means no limit.
func (c *conn) setReadTimeout(within time.Duration) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.closing {
		return // closeWith has set a deadline that ends run
	}
	var by time.Time
	if within > 0 {
		by = time.Now().Add(within)
	}
	c.nc.SetReadDeadline(by)
}

// batchSize returns the memory that a batch uses while it is being sent.
func batchSize(b Batch) int64 {
	n := int64(0)
	for _, e := range b.Events {
		n += int64(eventSize + len(e.Key) + len(e.Value))
	}
	return n
}
