package tcpstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

const (
	cancelTimeout = time.Second // for a server to confirm that a wait is cancelled, and to say what was missing
	maxNarrowed   = 1024        // keys of a wait that are looked for one by one when it has ended early
	keptBuffer    = 64 << 10    // bytes of a request's buffer that an idle link keeps
)

// link is one connection of a Client. It carries one call at a time and starts no goroutine: when the call's
// context ends, a deadline in the past ends the read or write under way. That deadline is lifted only where
// it is certain that it was set; a link that does not know is broken.
type clientConn struct {
	nc           net.Conn
	protocol     Protocol
	answers      replyReader
	out          []byte // requests to be written
	probe        *probe // nil where the connection has none
	namesMissing bool   // may ask which keys of a wait are missing

	waiting bool // a WAIT or BARRIER was sent whose answer has not come
	pending bool // a request without an answer was sent, and none with one since
	broken  bool // of no use any more

	mu        sync.Mutex // held while the deadline is moved
	interrupt func()     // ends the read or write under way
}

// errHungUp is the end of a connection.
var errServerClosed = errors.New("the server has closed the connection")

func newClientConn(p Protocol, namesMissing bool) *clientConn {
	l := &clientConn{protocol: p, namesMissing: namesMissing}
	l.interrupt = func() { l.setDeadline(time.Unix(1, 0)) }
	return l
}

func (l *clientConn) attach(nc net.Conn) {
	l.nc, l.answers, l.probe = nc, replyReader{bufio.NewReader(nc)}, newProbe(nc)
}

// setDeadline fails only on a connection that is closed, where every read and write fails.
func (l *clientConn) setDeadline(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.nc.SetDeadline(t)
}

// call makes the queries one after the other. Of those that failed it returns the first. When ctx ends during a wait,
// the wait is cancelled on the wire where the generation has a way, and then the link can be used again. Where the end
// of the wait and its cancellation cross, the wait has succeeded: that is no error if nothing was to follow it.
func (l *clientConn) call(ctx context.Context, queries []query) (a answer, failed int, err error) {
	stop := func() bool { return true }
	if ctx.Done() != nil {
		stop = context.AfterFunc(ctx, l.interrupt)
	}
	failed, err = l.exchange(queries, &a)
	l.broken = !stop() || err != nil
	if l.waiting && l.protocol == ProtocolV2 && errors.Is(err, os.ErrDeadlineExceeded) {
		released, cancelErr := l.cancelWait()
		if cancelErr == nil && !released && l.namesMissing {
			cancelErr = l.findMissing(&queries[failed])
		}
		l.setDeadline(time.Time{})
		l.broken = cancelErr != nil
		if released && failed == len(queries)-1 {
			err = nil
		}
	}
	// Bytes that nobody asked for would be taken for the next answer.
	l.broken = l.broken || l.answers.r.Buffered() > 0
	if cap(l.out) > keptBuffer {
		l.out = nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errServerClosed
	}
	return a, failed, err
}

// exchange writes the queries and reads their answers. A query without an answer travels with the next one that
// has one, in one write.
func (l *clientConn) exchange(queries []query, a *answer) (failed int, err error) {
	l.out = l.out[:0]
	first := 0 // of those in out
	for i := range queries {
		q := &queries[i]
		l.out = q.append(l.out, l.protocol)
		if !q.op.answered() && i < len(queries)-1 {
			continue
		}
		l.pending = true
		if _, err := l.nc.Write(l.out); err != nil {
			return first, err
		}
		if !q.op.answered() {
			break
		}
		l.waiting = q.op.blocks()
		if err := l.answers.read(q, a); err != nil {
			return first, err
		}
		l.waiting, l.pending = false, false
		l.out, first = l.out[:0], i+1
	}
	return 0, nil
}

// cancelWait ends a wait that the call's deadline has interrupted and tells whether the server had released it
// before.
func (l *clientConn) cancelWait() (released bool, err error) {
	// Whoever set the deadline has let go of mu before this one counts.
	l.setDeadline(time.Now().Add(cancelTimeout))
	code, _ := l.protocol.code(opCancelWait)
	if _, err := l.nc.Write([]byte{code}); err != nil {
		return false, err
	}
	cancel := &query{op: opCancelWait}
	for {
		var a answer
		if err := l.answers.read(cancel, &a); err != nil {
			return released, err
		}
		if a.flag == replyWaitCanceled {
			break
		}
		if released {
			return released, fmt.Errorf("%w: one wait was released twice", kvstore.ErrProtocol)
		}
		released = true
	}
	l.waiting, l.pending = false, false
	return released, nil
}

// narrow takes off a wait that was cancelled the keys that are present, so that its error names those that are not.
// Of a wait for very many keys it leaves all.
func (l *clientConn) findMissing(q *query) error {
	if n := len(q.keys); q.op != opWait || n < 2 || n > maxNarrowed {
		return nil
	}
	l.out = l.out[:0]
	for i := range q.keys {
		check := query{op: opCheck, keys: q.keys[i : i+1], raw: q.raw}
		l.out = check.append(l.out, l.protocol)
	}
	if _, err := l.nc.Write(l.out); err != nil {
		return err
	}
	var absent []string
	for _, key := range q.keys {
		var a answer
		if err := l.answers.read(&query{op: opCheck}, &a); err != nil {
			return err
		}
		if a.flag == replyNotReady {
			absent = append(absent, key)
		}
	}
	if len(absent) > 0 {
		q.keys = absent
	}
	return nil
}

// good tells whether an idle link can be used, as far as that can be told without a word to the server.
func (l *clientConn) usable() bool { return l.probe == nil || l.probe.quiet() }

// probe looks whether anything has come on an idle connection. Nothing should: the end of the connection means
// that the server has closed it, and bytes that nobody asked for are no answer.
type probe struct {
	raw  syscall.RawConn
	read func(fd uintptr) bool
	err  error
}

// newProbe returns nil where nc has no file descriptor.
func newProbe(nc net.Conn) *probe {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil // it is closed, and every use of it will tell
	}
	p := &probe{raw: raw}
	var one [1]byte
	p.read = func(fd uintptr) bool {
		_, p.err = syscall.Read(int(fd), one[:]) // does not block: Go's sockets never do
		return true
	}
	return p
}

// silent tells that nothing has come and that the connection has not ended.
func (p *probe) quiet() bool {
	if err := p.raw.Read(p.read); err != nil {
		return false
	}
	return errors.Is(p.err, syscall.EAGAIN) || errors.Is(p.err, syscall.EINTR)
}
