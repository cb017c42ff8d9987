package kvstore

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"
)

const (
	readSize  = 4 << 10  // bytes of the buffer that each connection reads into
	writeSize = 32 << 10 // bytes of answers that are gathered before they are written
	maxQueued = 1 << 20  // bytes of requests that may queue up behind a wait
)

// conn serves one connection, in one goroutine: it answers every request that has come in full, writes
// the answers, and reads again. Two things interrupt its read, both by setting a read deadline that has
// passed: the release of its wait and Server.Shutdown. Each sets its mark first, and conn looks at the
// marks after every change of the deadline, so none is missed. A deadline is not lifted when it has
// served: a read that ends early for one that means nothing any more lifts it and goes on.
type conn struct {
	srv *Server
	nc  net.Conn

	dec    decoder
	buf    []byte // buf[:filled] has come, buf[:taken] of it was decoded
	taken  int
	filled int
	out    []byte // answers to be written

	waiter   *waiter     // the wait under way
	released atomic.Bool // it is over
}

func newConn(srv *Server, nc net.Conn) *conn {
	return &conn{srv: srv, nc: nc, buf: make([]byte, readSize)}
}

// serve returns when the connection is over. Its error is never nil and says why.
func (c *conn) serve() error {
	defer c.cancelWait()
	for {
		err := c.answerAll()
		// What was answered before a bad request is sent even so.
		if err := errors.Join(err, c.flush()); err != nil {
			return err
		}
		if err := c.makeRoom(); err != nil {
			return err
		}
		if err := c.read(); err != nil {
			return err
		}
	}
}

// answerAll answers what has come. It leaves in buf what it cannot decide yet: the first bytes of a
// connection, and what is queued behind a wait.
func (c *conn) answerAll() error {
	for {
		unread := c.buf[c.taken:c.filled]
		if c.dec.generation == unknownGeneration {
			if c.dec.generation = detect(unread); c.dec.generation == unknownGeneration {
				return nil
			}
		}
		if c.waiter != nil && c.stillWaiting(unread) {
			return nil
		}
		rest, req, err := c.dec.decode(unread)
		c.taken = c.filled - len(rest)
		if err != nil {
			return err
		}
		if req == nil {
			return nil
		}
		if err := c.answer(req); err != nil {
			return err
		}
	}
}

// stillWaiting ends the wait if it was released or if the client goes on without it: today's clients
// say so with CANCEL_WAIT, those of the first generation just send their next request. The latter do
// not expect an answer to the wait any more, even if it was released in the same moment.
func (c *conn) stillWaiting(unread []byte) bool {
	switch {
	case c.released.Load():
	case len(unread) == 0:
		return true
	case c.dec.generation == TodaysGeneration && op(unread[0]) != opCancelWait:
		return true
	}
	if c.cancelWait() && (c.dec.generation == TodaysGeneration || len(unread) == 0) {
		c.out = append(c.out, answerStopWaiting)
	}
	return false
}

// cancelWait ends the wait, if there is one, and tells whether it was released before.
func (c *conn) cancelWait() (released bool) {
	if c.waiter == nil {
		return false
	}
	c.srv.storeMu.Lock()
	released = len(c.srv.store.cancel(c.waiter)) == 0
	c.srv.storeMu.Unlock()
	c.waiter = nil
	return released
}

func (c *conn) answer(req *request) error {
	switch req.op {
	case opWait:
		c.startWait(req.keys)
		return nil
	case opCancelWait:
		c.out = append(c.out, answerWaitCanceled)
		return nil
	}
	var values [][]byte
	var err error
	c.srv.storeMu.Lock()
	c.out, values, err = apply(c.srv.store, req, c.out)
	c.srv.storeMu.Unlock()
	if err != nil {
		return err
	}
	return c.putValues(values)
}

func (c *conn) startWait(keys []string) {
	c.released.Store(false)
	c.srv.storeMu.Lock()
	c.waiter = c.srv.store.wait(keys, func() {
		c.released.Store(true)
		c.interrupt()
	})
	c.srv.storeMu.Unlock()
	if c.waiter == nil {
		c.out = append(c.out, answerStopWaiting)
	}
}

// interrupt makes a read under way, or else the next one, return. It does not block. It can fail only on a
// connection that is closed, where every read returns.
func (c *conn) interrupt() { _ = c.nc.SetReadDeadline(time.Unix(1, 0)) }

// putValues puts values into the answer. It writes large ones at once: an answer may refer to far more
// bytes than it should hold in memory a second time.
func (c *conn) putValues(values [][]byte) error {
	for _, value := range values {
		if len(c.out)+len(value) < writeSize {
			c.out = appendValue(c.out, value)
			continue
		}
		c.out = appendInt(c.out, int64(len(value)))
		if err := c.flush(); err != nil {
			return err
		}
		if _, err := c.nc.Write(value); err != nil {
			return err
		}
	}
	if len(c.out) >= writeSize {
		return c.flush()
	}
	return nil
}

func (c *conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.nc.Write(c.out)
	c.out = c.out[:0]
	if cap(c.out) > readSize {
		c.out = nil // a connection at rest should not keep it
	}
	return err
}

// makeRoom makes room in buf for the next read. buf grows only while requests queue up behind a wait.
func (c *conn) makeRoom() error {
	c.filled = copy(c.buf, c.buf[c.taken:c.filled])
	c.taken = 0
	switch {
	case c.filled == 0 && len(c.buf) > readSize:
		c.buf = make([]byte, readSize)
	case c.filled < len(c.buf):
	case len(c.buf) >= maxQueued:
		return refuse(ReasonMalformed, "more than %d bytes of requests behind a wait", maxQueued)
	default:
		c.buf = append(c.buf, make([]byte, len(c.buf))...)
	}
	return nil
}

// read reads into buf what comes next, or returns nil without when the wait is over. Between requests it
// has all the time; within one, silence has a limit.
func (c *conn) read() error {
	partial := c.waiter == nil && (c.filled > 0 || c.dec.busy)
	passed := false // a deadline of an earlier request, or of an interrupt
	for {
		var deadline time.Time
		if partial {
			deadline = time.Now().Add(c.srv.opts.StallTimeout)
		}
		if partial || passed {
			if err := c.nc.SetReadDeadline(deadline); err != nil {
				return err
			}
		}
		switch {
		case c.waiter != nil && c.released.Load():
			return nil
		case c.waiter == nil && !partial && c.srv.closing():
			return ErrClosed
		}
		n, err := c.nc.Read(c.buf[c.filled:])
		c.filled += n
		switch {
		case n > 0:
			return nil // an error will come again
		case errors.Is(err, os.ErrDeadlineExceeded):
			if partial && !time.Now().Before(deadline) {
				return refuse(ReasonStalled, "half a request, then nothing for %v", c.srv.opts.StallTimeout)
			}
			passed = true
		case err != nil:
			return err
		}
	}
}
