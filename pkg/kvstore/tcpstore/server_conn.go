package tcpstore

import (
	"container/list"
	"errors"
	"io"
	"net"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore/internal/keyspace"
)

const (
	minInputSize = 4 << 10  // bytes of room that a request which came in part gets at least
	flushSize    = 32 << 10 // bytes of answers that are gathered before they are written
	stallShare   = 64 << 10 // bytes of a request within each StallTimeout
	turnSize     = 1 << 20  // bytes of requests and answers after which the other connections have their turn
)

// errMoved is the end of a connection for its loop, but not for its client.
var errHandedOver = errors.New("connection is somebody else's now")

// conn is one connection of a loop, to whose goroutine it belongs. It answers what has come in full and keeps
// the rest: part of a request, what queues up behind a wait, or what it had no time for. It reads no further while its
// client does not take the answers. reply.go is its other half.
type conn struct {
	loop   *loop
	fd     int
	remote net.Addr
	number uint64 // counts the connections accepted

	dec       decoder
	in        []byte // what has come and was not decoded; nil if that is nothing
	discarded int    // bytes in front of in that are of no use any more, but take memory
	pending   outbox // answers that the client was too slow to take
	yielded   bool   // it has not answered all that it could: the others had to have their turn

	waiter   *keyspace.Waiter // the wait under way
	released bool             // it is over
	waitSize int64            // what it takes of the memory

	stall      *list.Element // its place in loop.stalls
	stallStart time.Time     // when its time for a fair share of the request under way began
	stallSize  int           // the size of in at that time

	held   int64 // bytes that loop.held counts for it
	closed bool
}

// readable reads what has come and answers it. It returns how much that was.
func (c *conn) onReadable() (n int, err error) {
	if len(c.in) == 0 {
		n, err := c.receive(c.loop.scratch)
		if n == 0 || err != nil {
			return 0, err
		}
		return n, c.process(c.loop.scratch[:n], false)
	}
	if err := c.growInput(); err != nil {
		return 0, err
	}
	n, err = c.receive(c.in[len(c.in):min(cap(c.in), len(c.in)+maxCall)])
	if n == 0 || err != nil {
		return 0, err
	}
	c.in = c.in[:len(c.in)+n]
	return n, c.process(c.in, true)
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
func (c *conn) growInput() error {
	room := max(c.dec.need, len(c.in)+len(c.loop.scratch))
	if c.waiter != nil {
		if len(c.in) >= maxRequest {
			return refuse(ReasonMalformed, "more than %d bytes of requests behind a wait", maxRequest)
		}
		room = maxRequest
	}
	room = max(min(room, 2*len(c.in)), minInputSize)
	if room <= cap(c.in) {
		return nil
	}
	if err := c.loop.reserve(c, int64(room-cap(c.in))); err != nil {
		return err
	}
	c.moveInput(room)
	return nil
}

// moveIn moves what has come to memory of its own, with room for that many bytes.
func (c *conn) moveInput(room int) {
	in := make([]byte, len(c.in), room)
	copy(in, c.in)
	c.in, c.discarded = in, 0
}

// writable goes on with the answers, and when they are sent with the requests behind them.
func (c *conn) onWritable() error {
	if err := c.pending.sendTo(c.fd, &c.loop.pins); err != nil || !c.pending.empty() {
		c.account()
		return err
	}
	if err := c.loop.poll.watchWrite(c.fd, false); err != nil {
		return err
	}
	return c.process(c.in, true)
}

// work answers what b holds, and keeps the rest of it. own says that b is c.in.
func (c *conn) process(b []byte, own bool) error {
	n, given, err := c.processRequests(b, own)
	// What was answered before a bad request is sent even so.
	if err := errors.Join(err, c.flush()); err != nil {
		return err
	}
	rest := b[n:]
	switch {
	case len(rest) == 0:
		c.in, c.discarded = nil, 0
	case !own || given:
		c.in = rest
		c.moveInput(len(rest))
	default:
		c.in = rest
		if c.discarded += n; c.discarded > len(rest) { // so that what is moved is never more than what was answered
			c.moveInput(max(len(rest), minInputSize))
		}
	}
	c.updateStall(n > 0)
	return c.reserveGrowth()
}

// stillWaiting ends the wait if it was released or if the client goes on without it: today's clients
// say so with CANCEL_WAIT, those of the first generation just send their next request. The latter do
// not expect an answer to the wait any more, even if it was released in the same moment.
func (c *conn) keepWaiting(unread []byte) bool {
	switch {
	case c.released:
	case len(unread) == 0:
		return true
	case c.dec.protocol == ProtocolV2 && op(unread[0]) != opCancelWait:
		return true
	}
	if c.released && (c.dec.protocol == ProtocolV2 || len(unread) == 0) {
		c.loop.out = append(c.loop.out, replyStopWaiting)
	}
	c.cancelWait()
	return false
}

// wait begins the wait w, or is done with it if that is nil.
func (c *conn) wait(w *keyspace.Waiter) {
	if w == nil {
		c.loop.out = append(c.loop.out, replyStopWaiting)
		return
	}
	c.waiter, c.released, c.waitSize = w, false, w.Size()
}

// cancelWait ends the wait, if there is one.
func (c *conn) cancelWait() {
	if c.waiter == nil {
		return
	}
	c.loop.store.Cancel(c.waiter)
	c.waiter, c.waitSize = nil, 0
}

// release is called by the store, in the midst of somebody's request.
func (c *conn) release() {
	c.released = true
	c.loop.released = append(c.loop.released, c)
}

// watchStall keeps account of how long the request under way takes. Silence between requests, before the
// first one and behind a wait has no limit, nor has a client that is slow to take its answers.
func (c *conn) updateStall(answered bool) {
	partial := len(c.in) > 0 && c.waiter == nil && c.pending.empty() && !c.yielded
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
	case !answered && len(c.in)-c.stallSize < stallShare:
		return
	default:
		stalls.MoveToBack(c.stall)
	}
	c.stallStart, c.stallSize = time.Now(), len(c.in)
}

// account tells the loop how much memory c takes, and returns whether it is more than before.
func (c *conn) account() (more bool) {
	before := c.held
	c.held = int64(c.discarded+cap(c.in)+c.pending.copied+c.dec.req.size()) + c.waitSize
	c.loop.held += c.held - before
	return c.held > before
}

// claimGrowth makes sure that what c has come to take may be taken.
func (c *conn) reserveGrowth() error {
	if !c.account() && c.pending.empty() {
		return nil
	}
	return c.loop.reserve(c, 0)
}

// takes returns how many bytes would be free without c.
func (c *conn) memoryUse() int64 { return c.held + int64(c.pending.pinned) }

// idle tells whether c may be closed without a request being lost. A wait is none: it can take for ever.
func (c *conn) idle() bool {
	return c.pending.empty() && !c.yielded && (len(c.in) == 0 || c.waiter != nil)
}
