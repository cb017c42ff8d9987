package tcpstore

import (
	"container/list"
	"errors"
	"fmt"
	"maps"
	"net"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/internal/keyspace"
)

// loop serves all connections of a Server, in one goroutine: it waits until some of them can be read from or
// written to, and lets each do what it can. Nothing in it blocks but that wait. The store and the
// connections belong to that goroutine; others reach it through do and ask.
type loop struct {
	opts ServerOptions
	poll *poller

	store    *keyspace.Space
	conns    []*conn // by file descriptor
	open     int
	accepted uint64
	refused  map[Reason]uint64
	stopping bool // no connection is served longer than the request under way
	steps    int

	scratch      []byte    // what was read last
	out          []byte    // the answers of the connection at work
	sent         int       // bytes of answers so far
	released     []*conn   // whose wait is over
	yielded      []*conn   // who gave the others their turn
	yieldedSpare []*conn   // again's memory, for the next turn
	stalls       list.List // of the *conns with half a request, the one whose time ends first in front
	held         int64     // bytes that the connections hold, each for itself
	pins         pins      // the values that they refer to

	mu    sync.Mutex
	inbox []func()
	ended bool // nothing is taken into inbox any more

	done chan struct{} // closed when run has returned
}

func newLoop(opts ServerOptions) (*loop, error) {
	poll, err := newPoller()
	if err != nil {
		return nil, fmt.Errorf("wait for store connections: %w", err)
	}
	return &loop{
		opts:    opts,
		poll:    poll,
		store:   keyspace.New(),
		refused: map[Reason]uint64{},
		scratch: make([]byte, 64<<10),
		pins:    pins{values: map[*byte]*pin{}},
		done:    make(chan struct{}),
	}, nil
}

// do has f called in the loop's goroutine, soon. It returns false, and f is not called, if the loop has ended.
func (l *loop) post(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	if l.inbox = append(l.inbox, f); len(l.inbox) == 1 {
		l.poll.wake()
	}
	return true
}

// ask is do, and waits for f. If the loop has ended, it calls f itself.
func (l *loop) call(f func()) {
	answered := make(chan struct{})
	if l.post(func() { f(); close(answered) }) {
		<-answered
		return
	}
	<-l.done
	f()
}

// run returns when stopping is set and no connection is left.
func (l *loop) run() {
	defer close(l.done)
	defer l.poll.close()
	for !l.finished() {
		if _, err := l.step(l.nextStall()); err != nil {
			panic(fmt.Sprintf("kvstore: wait for connections: %v", err)) // only a defect here can be the cause
		}
	}
}

// yieldSteps is after how many turns the loop offers its CPU to other goroutines of its process. The system calls of a busy
// loop do not block, so the scheduler learns nothing from them, and on a single CPU the others would starve.
const yieldSteps = 16

// turn waits for events, for timeout at most, and acts on them. It returns how many there were.
func (l *loop) step(timeout time.Duration) (n int, err error) {
	var began time.Time
	if l.stalls.Len() > 0 {
		began = time.Now()
	}
	if len(l.released)+len(l.yielded) > 0 {
		timeout = 0
	}
	n, more, err := l.poll.wait(timeout)
	if err != nil {
		return 0, err
	}
	yielded := l.yielded
	l.yielded, l.yieldedSpare = l.yieldedSpare[:0], yielded
	woken := false
	for i := range n {
		fd := l.poll.fd(i)
		if fd < 0 {
			woken = true
		} else if c := l.conns[fd]; c != nil { // nil was closed since the wait; no other has its number yet
			l.serve(c)
		}
	}
	l.resume(yielded)
	if !began.IsZero() {
		l.expireStalls(time.Since(began)-max(0, timeout), more)
	}
	if woken {
		l.readInbox()
	}
	if l.steps++; l.steps%yieldSteps == 0 {
		runtime.Gosched()
	}
	return n + len(l.released) + len(l.yielded), nil
}

// mayEnd tells whether run may return, and closes the inbox then.
func (l *loop) finished() bool {
	if !l.stopping || l.open > 0 {
		return false
	}
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.readInbox()
	return true
}

func (l *loop) readInbox() {
	l.mu.Lock()
	inbox := l.inbox
	l.inbox = nil
	l.mu.Unlock()
	for _, f := range inbox {
		f()
	}
}

// admit serves the connection fd from now on, which must not block, or closes it.
func (l *loop) addConn(fd int, remote net.Addr) {
	c := &conn{loop: l, fd: fd, remote: remote}
	if l.stopping {
		_ = syscall.Close(fd)
		return
	}
	l.accepted++
	c.number = l.accepted
	if len(l.conns) <= fd {
		l.conns = append(l.conns, make([]*conn, fd+1-len(l.conns))...)
	}
	l.conns[fd] = c
	l.open++
	if l.opts.MaxConns > 0 && l.open > l.opts.MaxConns && l.evict(1, c) == 0 {
		l.closeConn(c, refuse(ReasonMaxConns, "%d connections are open", l.open-1))
	} else if err := l.poll.add(fd); err != nil {
		l.closeConn(c, err)
	}
}

func (l *loop) serve(c *conn) {
	var err error
	switch {
	case !c.pending.empty():
		err = c.onWritable()
	case !c.yielded: // else it goes on without reading first
		_, err = c.onReadable()
	}
	l.closeIfDone(c, err)
}

// settle ends c if err is not nil, and also when the loop is stopping and c is idle.
func (l *loop) closeIfDone(c *conn, err error) {
	switch {
	case err != nil:
		l.closeConn(c, err)
	case l.stopping && c.idle():
		l.closeConn(c, kvstore.ErrClosed)
	}
}

// goOn goes on with the connections whose wait is over, and with those that gave others their turn before.
func (l *loop) resume(yielded []*conn) {
	for _, c := range yielded {
		if !c.closed && c.yielded {
			l.closeIfDone(c, c.process(c.in, true))
		}
	}
	clear(yielded)
	for i := 0; i < len(l.released); i++ { // it may grow meanwhile
		if c := l.released[i]; !c.closed && c.waiter != nil && c.released {
			l.closeIfDone(c, c.process(c.in, true))
		}
	}
	clear(l.released)
	l.released = l.released[:0]
}

// end takes leave of c, because of err. It counts and logs a refusal before it closes the connection: a client that
// sees its end finds it counted.
func (l *loop) closeConn(c *conn, err error) {
	if c.closed {
		return
	}
	l.logRefusal(c, err)
	c.closed = true
	c.cancelWait()
	if c.stall != nil {
		l.stalls.Remove(c.stall)
	}
	c.pending.clear(&l.pins)
	l.held -= c.held
	l.conns[c.fd] = nil
	l.open--
	if !errors.Is(err, errHandedOver) {
		_ = syscall.Close(c.fd)
	}
}

func (l *loop) logRefusal(c *conn, err error) {
	refusal, ok := errors.AsType[*refusal](err)
	if !ok {
		return
	}
	level := zerolog.DebugLevel
	if l.refused[refusal.reason] == 0 {
		level = zerolog.WarnLevel
	}
	l.refused[refusal.reason]++
	l.opts.Logger.WithLevel(level).Stringer("remote", c.remote).
		Str("reason", string(refusal.reason)).Err(err).Msg("close store connection")
}

// untilStall returns how long the loop may wait for the next event; a negative time is for ever.
func (l *loop) nextStall() time.Duration {
	first := l.stalls.Front()
	if first == nil {
		return -1
	}
	return max(0, l.opts.StallTimeout-time.Since(first.Value.(*conn).stallStart))
}

// judge ends the connections that have not gone on with their request in time. late is how long the loop was not there
// to listen, because it was at work or its process was suspended; more says that it has not heard all yet.
func (l *loop) expireStalls(late time.Duration, more bool) {
	if late >= time.Second {
		for e := l.stalls.Front(); e != nil; e = e.Next() {
			c := e.Value.(*conn)
			c.stallStart = c.stallStart.Add(late)
		}
	}
	limit := l.opts.StallTimeout
	if more { // a loop that never hears all has to judge all the same
		limit *= 2
	}
	for first := l.stalls.Front(); first != nil; first = l.stalls.Front() {
		c := first.Value.(*conn)
		if time.Since(c.stallStart) < limit {
			return
		}
		l.closeConn(c, refuse(ReasonStalled, "%d bytes of a request, then less than %d in %v", c.stallSize, stallShare, l.opts.StallTimeout))
	}
}

// claim makes sure that n more bytes may be held for c. While there is not enough room, the connection that takes most
// is closed, so that nobody else pays for it; where none takes much, it is c.
func (l *loop) reserve(c *conn, n int64) error {
	limit := l.opts.MaxMemory / 2
	for l.held+l.pins.size+n > limit {
		hog := c
		for _, other := range l.conns {
			if other != nil && other.memoryUse() > hog.memoryUse() {
				hog = other
			}
		}
		err := refuse(ReasonMemory, "the connections take %d bytes more than the limit of %d; this one takes %d",
			l.held+l.pins.size+n-limit, limit, hog.memoryUse())
		if hog == c || hog.memoryUse() < min(minHogMemory, limit/8) {
			return err
		}
		l.closeConn(hog, err)
	}
	return nil
}

// hogsMemory is how many bytes a connection must take to be closed for another one's sake.
const minHogMemory = 1 << 20

// claimStore makes sure that n more bytes may be stored.
func (l *loop) checkStoreSize(n int64) error {
	limit := l.opts.MaxMemory / 2
	if l.store.Size()+n > limit {
		return refuse(ReasonMemory, "the store has %d bytes, and may have %d", l.store.Size(), limit)
	}
	return nil
}

// stop ends the connections: all of them, or, if graceful, those that are idle, the others when they have become so. What
// has reached this side by now is still answered, if it is no more than a few megabytes.
func (l *loop) stop(graceful bool) {
	l.stopping = true
	for _, c := range l.conns {
		switch {
		case c == nil:
		case !graceful:
			l.closeConn(c, kvstore.ErrClosed)
		default:
			l.closeIfDone(c, c.drain())
		}
	}
}

// renew ends the connections of clients and begins anew with an empty store. Who has said nothing yet may be an agent, and may stay.
func (l *loop) reset() {
	for _, c := range l.conns {
		if c != nil && (c.dec.protocol != protocolUnknown || len(c.in) > 0) {
			l.closeConn(c, kvstore.ErrClosed)
		}
	}
	l.store = keyspace.New()
}

// readOn reads and answers what has come, as long as there is something and c may.
func (c *conn) drain() error {
	for range 64 {
		if !c.pending.empty() || c.yielded {
			return nil
		}
		if n, err := c.onReadable(); n == 0 || err != nil {
			return err
		}
	}
	return nil
}

// stats returns the loop's counters.
func (l *loop) stats() Stats {
	return Stats{
		Open: l.open, Accepted: l.accepted, Refused: maps.Clone(l.refused),
		Keys: int(l.store.NumKeys()), Memory: l.store.Size() + l.held + l.pins.size,
	}
}
