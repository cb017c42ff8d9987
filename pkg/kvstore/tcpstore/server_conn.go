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
	minInputSize = 4 << 10  // bytes of room that a partial request gets at least
	flushSize    = 32 << 10 // bytes of replies that are collected before they are written
	stallShare   = 64 << 10 // bytes of a request that must arrive within each StallTimeout
	turnSize     = 1 << 20  // bytes of requests and replies after which a connection yields to the others
)

// errHandedOver ends a connection for its loop, but not for its client.
var errHandedOver = errors.New("connection was handed over")

// conn is one connection of a loop and belongs to the loop's goroutine. It answers every request that has arrived in
// full and keeps the rest: part of a request, requests behind a wait, or requests for which its turn was too short. It
// stops reading while its client does not read the replies. server_reply.go is its other half.
type conn struct {
	loop   *loop
	fd     int
	remote net.Addr
	number uint64 // in order of acceptance

	dec       decoder
	in        []byte // bytes that arrived and are not decoded; nil if there are none
	discarded int    // answered bytes before in that still use memory, because in shares their allocation
	pending   outbox // replies that the client was too slow to read
	yielded   bool   // it has more to answer, but yielded to the other connections

	waiter   *keyspace.Waiter // the wait in progress
	released bool             // the wait is over
	waitSize int64            // bytes of memory that the wait uses

	silent *list.Element // its element in loop.silent

	stall      *list.Element // its element in loop.stalls
	stallStart time.Time     // start of the current StallTimeout
	stallSize  int           // length of in at stallStart

	held   int64 // the bytes of this conn in loop.held
	closed bool
}

// onReadable reads what has arrived and answers it. It returns the number of bytes read.
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

// receive reads into b. It returns 0 and no error if nothing has arrived.
func (c *conn) receive(b []byte) (int, error) {
	n, err := sockRead(c.fd, b)
	switch {
	case err != nil && wouldBlock(err):
		return 0, nil
	case err == nil && n == 0:
		return 0, io.EOF
	}
	if err == nil && c.silent != nil {
		c.loop.removeSilent(c)
		err = c.takeWorkerFile(b[0])
	}
	return n, err
}

// growInput makes room at the end of in. It at most doubles in, and gives a long value no more room than it needs.
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

// moveInput moves in to an allocation of its own with the given capacity.
func (c *conn) moveInput(room int) {
	in := make([]byte, len(c.in), room)
	copy(in, c.in)
	c.in, c.discarded = in, 0
}

// onWritable continues to send replies, and after that answers the requests behind them.
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

// process answers the requests in b and keeps the rest of it. own means that b is c.in.
func (c *conn) process(b []byte, own bool) error {
	n, given, err := c.processRequests(b, own)
	// The replies to requests before a bad one are still sent.
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
		if c.discarded += n; c.discarded > len(rest) { // so that moving copies no more bytes than were answered
			c.moveInput(max(len(rest), minInputSize))
		}
	}
	c.updateStall(n > 0)
	return c.reserveGrowth()
}

// keepWaiting reports whether the wait continues. It ends the wait if the wait was released or the client canceled it:
// a client of protocol 2 with CANCEL_WAIT, one of protocol 1 with its next request. The latter no longer expects a
// reply to the wait, even if the wait was released at the same moment.
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

// wait begins the wait w, or replies at once if w is nil.
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

// release is called by the store while it carries out a request of any connection.
func (c *conn) release() {
	c.released = true
	c.loop.released = append(c.loop.released, c)
}

// updateStall restarts or stops the timer of the current request. Silence between requests, before the first one and
// behind a wait has no limit. Neither has a client that is slow to read its replies.
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

// account updates loop.held and returns whether c uses more memory than before.
func (c *conn) account() (more bool) {
	before := c.held
	c.held = int64(c.discarded+cap(c.in)+c.pending.copied+c.dec.req.size()) + c.waitSize
	c.loop.held += c.held - before
	return c.held > before
}

// reserveGrowth reserves the memory that c has come to use.
func (c *conn) reserveGrowth() error {
	if !c.account() && c.pending.empty() {
		return nil
	}
	return c.loop.reserve(c, 0)
}

// memoryUse returns the most bytes that closing c can free. Other connections may refer to the same values.
func (c *conn) memoryUse() int64 { return c.held + int64(c.pending.pinned) }

// idle reports whether closing c loses no request. A wait is not one, because it can take forever.
func (c *conn) idle() bool {
	return c.pending.empty() && !c.yielded && (len(c.in) == 0 || c.waiter != nil)
}
