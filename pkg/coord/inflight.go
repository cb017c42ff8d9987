package coord

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// underWay is what a connection takes of the memory for requests and answers, in bytes. All of it is guarded by server.mu.
type inflight struct {
	receiving int64 // of a request that has not come in full, or is at work
	sending   int64 // of what is being written
	counted   int64 // what Server.underWay has of this connection
	done      bool  // the connection is ending, and counts for nothing any more
	dropped   bool  // it ends because it took too much
}

// leastHog is how many bytes a connection must take to be closed for another one's sake.
const minDropBytes = 256 << 10

// charge counts what c takes now. Where all connections together take too much, the one that takes most is closed, which
// is an error if it is c. Its client connects anew, and resumes its session. server.mu is held.
func (c *conn) account() error {
	s, u := c.server, &c.inflight
	if u.done {
		return c.dropErr()
	}
	takes := u.receiving + u.sending + int64(cap(c.out))
	s.inflight += takes - u.counted
	u.counted = takes
	for s.inflight > s.opts.MaxMemory/2 {
		hog := c
		for other := range s.conns {
			if other.inflight.counted > hog.inflight.counted {
				hog = other
			}
		}
		if hog != c && hog.inflight.counted < minDropBytes {
			hog = c
		}
		s.stats.Dropped++
		s.opts.Logger.Warn().Stringer("from", hog.nc.RemoteAddr()).Int64("bytes", hog.inflight.counted).
			Msg("agent's connection is closed: its requests and answers take too much of the store's memory")
		hog.drop()
	}
	return c.dropErr()
}

// whyDropped is errDropped if c was dropped. server.mu is held.
func (c *conn) dropErr() error {
	if c.inflight.dropped {
		return errDropped
	}
	return nil
}

// errDropped is the end of a connection that takes too much memory.
var errDropped = errors.New("its requests and answers take too much memory")

// drop closes c and counts it no more. server.mu is held.
func (c *conn) drop() {
	c.stopCounting()
	c.inflight.dropped = true
	c.out, c.ready, c.closing = nil, nil, true
	c.nc.Close() // run ends
}

// release counts c no more, for good. server.mu is held.
func (c *conn) stopCounting() {
	c.server.inflight -= c.inflight.counted
	c.inflight.counted, c.inflight.done = 0, true
}

// smallRequest is the size up to which a request is neither counted nor hurried.
const smallRequest = 4 << 10

// request reads one frame of a client that has a session. A large one takes no more memory than the store has, nor more
// time for each 64 KiB than StallTimeout. What was read before it is not in use any more.
func (c *conn) readRequest(scratch []byte) (kind, []byte, error) {
	if c.largeRequest {
		c.largeRequest = false
		if err := c.countReceiving(0); err != nil {
			return 0, nil, err
		}
	}
	head, err := c.in.Peek(frameHeader)
	if err != nil {
		return 0, nil, unexpectedEOF(err, len(head))
	}
	size := binary.BigEndian.Uint32(head)
	if size <= smallRequest || size > maxFrame {
		return c.read(maxFrame, scratch)
	}
	c.largeRequest = true
	_, _ = c.in.Discard(frameHeader) // they are there
	body, err := c.readLargeBody(int(size))
	if err != nil {
		return 0, nil, err
	}
	c.server.received.count(1, frameHeader+len(body))
	c.setReadTimeout(0)
	return kind(body[0]), body[1:], nil
}

// unlessEmpty is io.EOF in the midst of a frame, or as it is.
func unexpectedEOF(err error, have int) error {
	if have > 0 && errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// largeBody reads what is behind a frame's header. It takes memory for no more than four times what has come: a commit's
// values are copied from there.
func (c *conn) readLargeBody(size int) ([]byte, error) {
	const step = 64 << 10
	b := make([]byte, 0, min(size, step))
	for {
		if err := c.countReceiving(int64(2 * cap(b))); err != nil {
			return nil, err
		}
		c.setReadTimeout(c.server.opts.StallTimeout)
		n, err := io.ReadFull(c.in, b[len(b):min(cap(b), len(b)+step)])
		if b = b[:len(b)+n]; err != nil {
			return nil, fmt.Errorf("frame that ends after %d of %d bytes: %w", len(b), size, err)
		}
		switch len(b) {
		case size:
			return b, nil
		case cap(b):
			more := make([]byte, len(b), min(size, 2*len(b)))
			copy(more, b)
			b = more
		}
	}
}

// receiving counts that a request takes that many bytes.
func (c *conn) countReceiving(n int64) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.inflight.receiving = n
	return c.account()
}

// hurry lets what is to be read come within that time; 0 gives it all the time.
func (c *conn) setReadTimeout(within time.Duration) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.closing {
		return // run is to end, by a deadline of its own
	}
	var by time.Time
	if within > 0 {
		by = time.Now().Add(within)
	}
	c.nc.SetReadDeadline(by)
}

// sizeOfBatch is what a batch takes on its way to a client.
func batchSize(b Batch) int64 {
	n := int64(0)
	for _, e := range b.Events {
		n += int64(eventSize + len(e.Key) + len(e.Value))
	}
	return n
}

// awaitDisk waits until the disk has caught up with what commits have changed. mu is held, but not while it waits.
func (s *Server) waitForBacklog() {
	for d := s.disk; d != nil && d.err == nil && s.core.journal.size > s.opts.MaxMemory/4; {
		d.progress.Wait()
	}
}
