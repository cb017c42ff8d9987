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
	cancelTimeout = time.Second // for a server to confirm that a wait is canceled, and to report the missing keys
	maxNarrowed   = 1024        // keys of a canceled wait that are checked one by one
	keptBuffer    = 64 << 10    // bytes of the request buffer that an idle connection keeps
)

// clientConn is one connection of a Client. It carries one call at a time and starts no goroutine: when the context of
// the call ends, a deadline in the past interrupts the read or write in progress. The deadline is lifted only if it
// was certainly set; otherwise the connection is broken.
type clientConn struct {
	nc           net.Conn
	protocol     Protocol
	answers      replyReader
	out          []byte // requests to write
	probe        *probe // nil if the connection has no file descriptor
	namesMissing bool   // may ask which keys of a wait are missing

	waiting bool // a WAIT or BARRIER was sent and its reply has not arrived
	pending bool // a request without a reply was sent, and none with a reply since
	broken  bool // must not be used again

	mu        sync.Mutex // held while the deadline is set
	interrupt func()     // ends the read or write in progress
}

// errServerClosed means that the server closed the connection.
var errServerClosed = errors.New("the server has closed the connection")

func newClientConn(p Protocol, namesMissing bool) *clientConn {
	l := &clientConn{protocol: p, namesMissing: namesMissing}
	l.interrupt = func() { l.setDeadline(time.Unix(1, 0)) }
	return l
}

func (l *clientConn) attach(nc net.Conn) {
	l.nc, l.answers, l.probe = nc, replyReader{bufio.NewReader(nc)}, newProbe(nc)
}

// setDeadline ignores the error, which only a closed connection returns: every read and write fails there too.
func (l *clientConn) setDeadline(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.nc.SetDeadline(t)
}

// call sends the queries one after another and returns the index of the first that failed. When ctx ends during a
// wait, call cancels the wait on the wire if the protocol can, and the connection stays usable. If the release of the
// wait crosses the cancellation, the wait has succeeded, which is no error if it was the last query.
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
	// Unrequested bytes would be taken for the next reply.
	l.broken = l.broken || l.answers.r.Buffered() > 0
	if cap(l.out) > keptBuffer {
		l.out = nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errServerClosed
	}
	return a, failed, err
}

// exchange writes the queries and reads their replies. A query without a reply travels in one write with the next
// query that has one.
func (l *clientConn) exchange(queries []query, a *answer) (failed int, err error) {
	l.out = l.out[:0]
	first := 0 // the first query in out
	for i := range queries {
		q := &queries[i]
		l.out = q.append(l.out, l.protocol)
		if ops[q.op].silent && i < len(queries)-1 {
			continue
		}
		l.pending = true
		if _, err := l.nc.Write(l.out); err != nil {
			return first, err
		}
		if ops[q.op].silent {
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

// cancelWait cancels a wait that the deadline interrupted. It reports whether the server had already released the
// wait.
func (l *clientConn) cancelWait() (released bool, err error) {
	// The interrupt took mu before this call of setDeadline, so its deadline cannot replace this one.
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

// findMissing removes the keys that are present from a canceled wait, so that its error names the missing ones. It
// leaves a wait for very many keys as it is.
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

// usable reports whether an idle connection looks alive, without asking the server.
func (l *clientConn) usable() bool { return l.probe == nil || l.probe.quiet() }

// probe reports whether anything has arrived on an idle connection. Nothing should: an end means that the server
// closed the connection, and unrequested bytes are no reply.
type probe struct {
	raw  syscall.RawConn
	read func(fd uintptr) bool
	err  error
}

// newProbe returns nil if nc has no file descriptor.
func newProbe(nc net.Conn) *probe {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil // it is closed; its next use fails
	}
	p := &probe{raw: raw}
	var one [1]byte
	p.read = func(fd uintptr) bool {
		_, p.err = syscall.Read(int(fd), one[:]) // does not block: Go's sockets are nonblocking
		return true
	}
	return p
}

// quiet reports that nothing has arrived and that the connection has not ended.
func (p *probe) quiet() bool {
	if err := p.raw.Read(p.read); err != nil {
		return false
	}
	return errors.Is(p.err, syscall.EAGAIN) || errors.Is(p.err, syscall.EINTR)
}
