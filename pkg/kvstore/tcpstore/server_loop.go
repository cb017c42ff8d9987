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

	"github.com/elasticrun/elasticrun/internal/openfiles"
	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/internal/keyspace"
)

// loop serves all connections of a Server in one goroutine. It waits until some of them are readable or writable and
// lets each do what it can. Nothing else in it blocks. The store and the connections belong to that goroutine; other
// goroutines reach it through post and call.
type loop struct {
	opts ServerOptions
	poll *poller

	store       *keyspace.Space
	conns       []*conn // by file descriptor
	open        int
	accepted    uint64
	refused     map[Reason]uint64
	notAdmitted time.Time // of the last warning for ReasonNotAdmitted
	stopping    bool      // each connection ends with its current request
	steps       int

	scratch      []byte    // bytes read last
	out          []byte    // replies of the current connection
	sent         int       // bytes of replies so far
	released     []*conn   // connections whose wait is over
	yielded      []*conn   // connections that yielded to the others
	yieldedSpare []*conn   // the allocation of yielded for the next step
	stalls       list.List // the *conns with a partial request, in the order of their deadlines
	silent       list.List // the *conns on which the client never sent anything, in order of acceptance
	maxSilent    int       // the most connections in silent
	workerFiles  int       // see workerFiles
	anyFiles     int       // see anyFiles
	held         int64     // bytes that the connections hold, each for itself
	pins         pins      // the values that the connections refer to

	mu    sync.Mutex
	inbox []func()
	ended bool // inbox accepts no more functions

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

		maxSilent: openfiles.ClientShare(mostSilent), workerFiles: workerFiles(), anyFiles: anyFiles(),
	}, nil
}

// post makes the loop's goroutine call f soon. It returns false, and f is not called, if the loop has ended.
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

// call makes the loop's goroutine call f, and waits for that. If the loop has ended, call calls f itself.
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
			panic(fmt.Sprintf("tcpstore: wait for connections: %v", err)) // only a defect in this package can cause it
		}
	}
}

// yieldSteps is after how many steps the loop yields its CPU to other goroutines of the process. The system calls of a
// busy loop do not block, so the scheduler learns nothing from them. On a single CPU, other goroutines would starve.
const yieldSteps = 16

// step waits for events, up to timeout, and handles them. It returns how many there were.
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
		} else if c := l.conns[fd]; c != nil { // nil: closed since the wait; a conn that moved to fd since finds no data
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

// finished reports whether run may return, and closes the inbox in that case.
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

// addConn begins to serve the connection fd, which must be nonblocking, or closes it.
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
	} else {
		l.addSilent(c)
	}
}

func (l *loop) serve(c *conn) {
	var err error
	switch {
	case !c.pending.empty():
		err = c.onWritable()
	case !c.yielded: // a connection that yielded continues without reading first
		_, err = c.onReadable()
	}
	l.closeIfDone(c, err)
}

// closeIfDone closes c if err is not nil, or if the loop is stopping and c is idle.
func (l *loop) closeIfDone(c *conn, err error) {
	switch {
	case err != nil:
		l.closeConn(c, err)
	case l.stopping && c.idle():
		l.closeConn(c, kvstore.ErrClosed)
	}
}

// resume continues with the connections whose wait is over and with those that yielded.
func (l *loop) resume(yielded []*conn) {
	for _, c := range yielded {
		if !c.closed && c.yielded {
			l.closeIfDone(c, c.process(c.in, true))
		}
	}
	clear(yielded)
	for i := 0; i < len(l.released); i++ { // released may grow meanwhile
		if c := l.released[i]; !c.closed && c.waiter != nil && c.released {
			l.closeIfDone(c, c.process(c.in, true))
		}
	}
	clear(l.released)
	l.released = l.released[:0]
}

// closeConn closes c because of err. It counts and logs a refusal first, so that a client that sees its connection end
// finds it counted.
func (l *loop) closeConn(c *conn, err error) {
	if c.closed {
		return
	}
	l.logRefusal(c.remote, err)
	c.closed = true
	c.cancelWait()
	l.removeSilent(c)
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

// logRefusal counts and logs a connection that is closed for a Reason.
func (l *loop) logRefusal(remote net.Addr, err error) {
	refusal, ok := errors.AsType[*refusal](err)
	if !ok {
		return
	}
	level := zerolog.DebugLevel
	switch {
	case refusal.reason != ReasonNotAdmitted && l.refused[refusal.reason] == 0:
		level = zerolog.WarnLevel
	case refusal.reason == ReasonNotAdmitted && time.Since(l.notAdmitted) >= notAdmittedPause:
		level, l.notAdmitted = zerolog.WarnLevel, time.Now()
	}
	l.refused[refusal.reason]++
	l.opts.Logger.WithLevel(level).Stringer("remote", remote).
		Str("reason", string(refusal.reason)).Err(err).Msg("close store connection")
}

// notAdmittedPause is the least time between two warnings for ReasonNotAdmitted.
const notAdmittedPause = time.Minute

// nextStall returns how long the loop may wait for the next event; a negative time is forever.
func (l *loop) nextStall() time.Duration {
	first := l.stalls.Front()
	if first == nil {
		return -1
	}
	return max(0, l.opts.StallTimeout-time.Since(first.Value.(*conn).stallStart))
}

// expireStalls closes the connections whose request did not continue in time. late is how long the loop could not
// read, because it was busy or its process was suspended. more means that there are events that the loop has not seen.
func (l *loop) expireStalls(late time.Duration, more bool) {
	if late >= time.Second {
		for e := l.stalls.Front(); e != nil; e = e.Next() {
			c := e.Value.(*conn)
			c.stallStart = c.stallStart.Add(late)
		}
	}
	limit := l.opts.StallTimeout
	if more { // not forever, because a loop under constant load may never see all events
		limit *= 2
	}
	for first := l.stalls.Front(); first != nil; first = l.stalls.Front() {
		c := first.Value.(*conn)
		if time.Since(c.stallStart) < limit {
			return
		}
		l.closeConn(c, refuse(ReasonStalled, "%d bytes of a request arrived, then less than %d in %s",
			c.stallSize, stallShare, seconds.Format(l.opts.StallTimeout)))
	}
}

// reserve makes sure that n more bytes may be held for c. While memory is short, it closes the connection that uses
// most, so that no other pays for it. If c uses most, or no connection uses much, it returns an error, which closes c.
func (l *loop) reserve(c *conn, n int64) error {
	limit := l.opts.MaxMemory / 2
	for l.held+l.pins.size+n > limit {
		hog := c
		for _, other := range l.conns {
			if other != nil && other.memoryUse() > hog.memoryUse() {
				hog = other
			}
		}
		err := refuse(ReasonMemory, "the connections use %d bytes more than the limit of %d; this one uses %d",
			l.held+l.pins.size+n-limit, limit, hog.memoryUse())
		if hog == c || hog.memoryUse() < min(minHogMemory, limit/8) {
			return err
		}
		l.closeConn(hog, err)
	}
	return nil
}

// minHogMemory is the least number of bytes for which a connection is closed in favor of another.
const minHogMemory = 1 << 20

// checkStoreSize returns an error if n more bytes may not be stored.
func (l *loop) checkStoreSize(n int64) error {
	limit := l.opts.MaxMemory / 2
	if l.store.Size()+n > limit {
		return refuse(ReasonMemory, "the store holds %d bytes, the limit is %d", l.store.Size(), limit)
	}
	return nil
}

// stop closes the connections. If graceful, it closes the idle ones now and the others when they become idle. Requests
// that have already arrived are still answered, up to a few megabytes.
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

// reset closes the connections of clients and starts with an empty store. A connection on which nothing was sent
// stays, because it may become an agent's.
func (l *loop) reset() {
	for _, c := range l.conns {
		if c != nil && (c.dec.protocol != protocolUnknown || len(c.in) > 0) {
			l.closeConn(c, kvstore.ErrClosed)
		}
	}
	l.store = keyspace.New()
}

// drain reads and answers what has arrived, as long as c does not have to wait.
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
