package kvstore

import (
	"container/list"
	"errors"
	"io"
	"net"
	"time"
)

const (
	firstRoom  = 4 << 10  // bytes of room that a request which came in part gets at least
	writeSize  = 32 << 10 // bytes of answers that are gathered before they are written
	maxQueued  = 1 << 20  // bytes of requests that may queue up behind a wait
	fairShare  = 64 << 10 // bytes of a request within each StallTimeout
	hogsMemory = 1 << 20  // bytes from which on a connection counts as one that takes much memory
)

// errMoved is the end of a connection for its loop, but not for its client.
var errMoved = errors.New("connection is somebody else's now")

// conn is one connection of a loop, to whose goroutine it belongs. It answers what has come in full and keeps
// the rest: part of a request, or what queues up behind a wait. It reads no further while its client
// does not take the answers.
type conn struct {
	loop   *loop
	fd     int
	remote net.Addr

	dec     decoder
	in      []byte // what has come and was not decoded; nil if that is nothing
	pending outbox // answers that the client was too slow to take

	waiter   *waiter // the wait under way
	released bool    // it is over
	waitSize int64   // what it takes of the memory

	stall *list.Element // its place in loop.stalls
	since time.Time     // when its time for a fair share of the request under way began
	came  int           // the size of in at that time

	held   int64 // bytes that loop.held counts for it
	closed bool
}

// readable reads what has come and answers it.
func (c *conn) readable() error {
	if len(c.in) == 0 {
		n, err := c.receive(c.loop.scratch)
		if n == 0 || err != nil {
			return err
		}
		return c.work(c.loop.scratch[:n], false)
	}
	if err := c.makeRoom(); err != nil {
		return err
	}
	n, err := c.receive(c.in[len(c.in):cap(c.in)])
	if n == 0 || err != nil {
		return err
	}
	c.in = c.in[:len(c.in)+n]
	return c.work(c.in, true)
}

// receive reads into b. It returns 0 and no error if there is nothing.
func (c *conn) receive(b []byte) (int, error) {
	n, err := sockRead(c.fd, b)
	switch {
	case err != nil && wouldBlock(err):
		return 0, nil
	case err == nil && n == 0:
		return 0, io.EOF
	}
	return n, err
}

// makeRoom makes room behind in: for as much again at most, but for a long value no more than it needs.
func (c *conn) makeRoom() error {
	room := max(c.dec.need, len(c.in)+len(c.loop.scratch))
	if c.waiter != nil {
		if len(c.in) >= maxQueued {
			return refuse(ReasonMalformed, "more than %d bytes of requests behind a wait", maxQueued)
		}
		room = maxQueued
	}
	room = max(min(room, 2*len(c.in)), firstRoom)
	if room <= cap(c.in) {
		return nil
	}
	if err := c.loop.claim(c, int64(room-cap(c.in))); err != nil {
		return err
	}
	in := make([]byte, len(c.in), room)
	copy(in, c.in)
	c.in = in
	return nil
}

// writable goes on with the answers, and when they are sent with the requests behind them.
func (c *conn) writable() error {
	if err := c.pending.sendTo(c.fd); err != nil || !c.pending.empty() {
		c.account()
		return err
	}
	if err := c.loop.poll.turn(c.fd, false); err != nil {
		return err
	}
	return c.work(c.in, true)
}

// work answers what b holds, and keeps the rest of it. own says that b is c.in.
func (c *conn) work(b []byte, own bool) error {
	n, given, err := c.answerAll(b, own)
	// What was answered before a bad request is sent even so.
	if err := errors.Join(err, c.flush()); err != nil {
		return err
	}
	rest := b[n:]
	switch {
	case len(rest) == 0:
		c.in = nil
	case !own || given:
		c.in = append([]byte(nil), rest...)
	case n > 0:
		c.in = c.in[:copy(c.in, rest)]
	}
	c.watchStall(n > 0)
	if c.account() {
		return c.loop.claim(c, 0)
	}
	return nil
}

// answerAll answers the requests in b and returns how many bytes they took. It stops at what it cannot
// decide yet, at what is queued behind a wait, and when the client takes no more answers. given says
// that the store has kept a part of b.
func (c *conn) answerAll(b []byte, own bool) (n int, given bool, err error) {
	for c.pending.empty() {
		unread := b[n:]
		if c.dec.generation == unknownGeneration {
			if len(unread) > 0 && unread[0] >= agentByte && c.loop.opts.Agents != nil {
				return n, given, c.handOver(unread)
			}
			if c.dec.generation = detect(unread); c.dec.generation == unknownGeneration {
				c.dec.need = len(opening)
				break
			}
		}
		if c.waiter != nil && c.stillWaiting(unread) {
			break
		}
		size, err := c.dec.decode(unread)
		if err != nil || size == 0 {
			return n, given, err
		}
		n += size
		if err := c.answer(&c.dec.req, own); err != nil {
			return n, given, err
		}
		given = given || c.dec.req.given
	}
	return n, given, nil
}

// stillWaiting ends the wait if it was released or if the client goes on without it: today's clients
// say so with CANCEL_WAIT, those of the first generation just send their next request. The latter do
// not expect an answer to the wait any more, even if it was released in the same moment.
func (c *conn) stillWaiting(unread []byte) bool {
	switch {
	case c.released:
	case len(unread) == 0:
		return true
	case c.dec.generation == TodaysGeneration && op(unread[0]) != opCancelWait:
		return true
	}
	if c.released && (c.dec.generation == TodaysGeneration || len(unread) == 0) {
		c.loop.out = append(c.loop.out, answerStopWaiting)
	}
	c.cancelWait()
	return false
}

// cancelWait ends the wait, if there is one.
func (c *conn) cancelWait() {
	if c.waiter == nil {
		return
	}
	c.loop.store.cancel(c.waiter)
	c.waiter, c.waitSize = nil, 0
}

func (c *conn) answer(req *request, own bool) error {
	if req.op.stores() {
		if err := c.loop.claim(c, int64(len(req.bytes)+entryCost*(1+len(req.keys)))); err != nil {
			return err
		}
	}
	switch req.op {
	case opWait:
		c.wait(c.loop.store.wait(req.allKeys(), c.release))
		return nil
	case opBarrier:
		w, err := c.loop.store.arrive(req.key(0), int64(req.number), c.release)
		if err != nil {
			return notNumber(err)
		}
		c.wait(w)
		return nil
	case opCancelWait:
		c.loop.out = append(c.loop.out, answerWaitCanceled)
		return nil
	}
	var values [][]byte
	var err error
	c.loop.out, values, err = apply(c.loop.store, req, own, c.loop.out)
	if err != nil {
		return err
	}
	return c.putValues(values)
}

// wait begins the wait w, or is done with it if that is nil.
func (c *conn) wait(w *waiter) {
	if w == nil {
		c.loop.out = append(c.loop.out, answerStopWaiting)
		return
	}
	c.waiter, c.released, c.waitSize = w, false, w.size()
}

// release is called by the store, in the midst of somebody's request.
func (c *conn) release() {
	c.released = true
	c.loop.released = append(c.loop.released, c)
}

// putValues puts values into the answer. It writes large ones at once: an answer may refer to far more
// bytes than it should hold in memory a second time.
func (c *conn) putValues(values [][]byte) error {
	l := c.loop
	for _, value := range values {
		if len(l.out)+len(value) < writeSize {
			l.out = appendValue(l.out, value)
			continue
		}
		l.out = appendInt(l.out, int64(len(value)))
		if err := c.flush(); err != nil {
			return err
		}
		if err := c.sendValue(value); err != nil {
			return err
		}
	}
	if len(l.out) >= writeSize {
		return c.flush()
	}
	return nil
}

// sendValue sends value behind what was flushed.
func (c *conn) sendValue(value []byte) error {
	n := 0
	if c.pending.empty() {
		var err error
		if n, err = sendSome(c.fd, value); err != nil || n == len(value) {
			return err
		}
		if err := c.loop.poll.turn(c.fd, true); err != nil {
			return err
		}
	}
	c.pending.refer(value[n:])
	return nil
}

// flush sends the answers gathered, as far as the client takes them.
func (c *conn) flush() error {
	l := c.loop
	if len(l.out) == 0 {
		return nil
	}
	n := 0
	if c.pending.empty() {
		var err error
		if n, err = sendSome(c.fd, l.out); err != nil {
			l.out = l.out[:0]
			return err
		}
		if n < len(l.out) {
			err = l.poll.turn(c.fd, true)
		}
		if n == len(l.out) || err != nil {
			l.out = l.out[:0]
			return err
		}
	}
	c.pending.copyOf(l.out[n:])
	l.out = l.out[:0]
	return nil
}

// watchStall keeps account of how long the request under way takes. Silence between requests, before the
// first one and behind a wait has no limit, nor has a client that is slow to take its answers.
func (c *conn) watchStall(answered bool) {
	partial := len(c.in) > 0 && c.waiter == nil && c.pending.empty()
	stalls := &c.loop.stalls
	switch {
	case !partial && c.stall == nil:
		return
	case !partial:
		stalls.Remove(c.stall)
		c.stall = nil
		return
	case c.stall == nil:
		c.stall = stalls.PushBack(c)
	case !answered && len(c.in)-c.came < fairShare:
		return
	default:
		stalls.MoveToBack(c.stall)
	}
	c.since, c.came = time.Now(), len(c.in)
}

// account tells the loop how much memory c takes, and returns whether it is more than before.
func (c *conn) account() (more bool) {
	before := c.held
	c.held = int64(cap(c.in)+c.pending.size) + c.waitSize
	c.loop.held += c.held - before
	return c.held > before
}

// idle tells whether c may be closed without a request being lost. A wait is none: it can take for ever.
func (c *conn) idle() bool {
	return c.pending.empty() && (len(c.in) == 0 || c.waiter != nil)
}
