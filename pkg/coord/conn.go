package coord

import (
	"container/list"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

// conn is the server's end of an agent's connection. One goroutine, run, reads requests and answers them. Another
// goroutine, write, sends watch batches and exists only while there is output. Therefore most connections need one
// goroutine and small buffers.
type conn struct {
	server  *Server
	nc      net.Conn      // replaced once, by run with server.mu held
	below   *limitedConn  // under TLS; used by run only
	binding []byte        // of the TLS connection; used by run only
	shed    chan struct{} // closed when the server closes c before it has a session
	runDone chan struct{} // closed when run has ended

	// joinedRun is the run that the client joined as an agent; used by run only and set in the handshake.
	joinedRun string

	// Guarded by server.mu:
	session     *session           // nil before the handshake and after the session has ended
	watches     map[int64]*watcher // by the client's number
	ready       []int64            // watches with an available batch
	out         []byte             // frames to send
	writing     bool               // a goroutine is in write, or run will call it
	closing     bool               // only out is still sent, within exitNoticeTimeout
	ended       bool               // run has ended
	inflight    inflight
	pendingElem *list.Element // element of server.pending while the connection has no session

	largeRequest bool // used by run only: inflight counts the current request
	isMember     bool // used by run only: it belongs to another member and has no session
	handedOver   bool // used by run only: the connection belongs to ServerOptions.OnMember
}

func newConn(s *Server, nc net.Conn) *conn {
	return &conn{server: s, nc: nc, shed: make(chan struct{}), runDone: make(chan struct{})}
}

// run serves the connection until it ends.
func (c *conn) run() {
	joined, err := c.handshake()
	if !joined {
		c.finish(err)
		return
	}
	if onJoin := c.server.opts.OnJoin; onJoin != nil && c.joinedRun != "" {
		onJoin(c.joinedRun)
	}
	c.server.running.Go(func() { // in a new goroutine, because the handshake has grown the stack of this one
		c.write()
		c.finish(c.serve())
	})
}

// finish releases the resources of the connection.
func (c *conn) finish(err error) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(err, errMalformed) && !c.closing {
		s.stats.Malformed++
		s.opts.Logger.Debug().Err(err).Stringer("from", c.nc.RemoteAddr()).Msg("closed an agent's connection")
	}
	c.stopCounting()
	s.removePending(c)
	c.ended = true
	close(c.runDone)
	delete(s.conns, c)
	for _, w := range c.watches {
		s.core.unwatch(w)
	}
	c.watches, c.ready = nil, nil
	if c.session != nil {
		delete(s.sessionConns, c.session) // the client may resume the session until it expires
		c.session = nil
	}
	if !c.handedOver && (!c.writing || !c.closing) {
		c.nc.Close()
	}
}

// serve answers requests until the connection ends.
func (c *conn) serve() error {
	scratch := make([]byte, frameHeader)
	for {
		k, body, err := c.readRequest(scratch)
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := c.handle(k, body); err != nil {
			return err
		}
	}
}

// read reads one frame.
func (c *conn) read(limit int, scratch []byte) (kind, []byte, error) {
	k, body, err := readFrame(c.nc, limit, scratch)
	if err == nil {
		c.server.received.count(1, frameHeader+1+len(body))
	}
	return k, body, err
}

// handle handles one request frame.
func (c *conn) handle(k kind, body []byte) error {
	in := &fields{b: body}
	var commit commitRequest
	var number int64
	var prefix string
	var err error
	switch k {
	case kindCommit:
		commit, err = decodeCommit(body)
	case kindWatch:
		number, prefix = in.number(), in.string()
		err = in.end()
	case kindKeepAlive, kindUnwatch, kindEnd:
		number = in.number()
		err = in.end()
	default:
		err = errMalformed
	}
	if err != nil {
		return err
	}

	s := c.server
	s.mu.Lock()
	if k == kindCommit {
		s.waitForBacklog()
	}
	if c.session == nil || c.closing {
		s.mu.Unlock()
		return nil // the client will get, or has got, an exit notice
	}
	switch k {
	case kindCommit:
		revision, err := Revision(0), c.mayCommit(commit)
		if err == nil {
			revision, err = s.core.commit(c.session, commit.guards, commit.ops, s.clock())
		}
		r := reply{request: commit.request, revision: revision}
		if err != nil {
			r.code, r.message = codeOf(err)
		}
		s.startTicker()
		c.out = appendReply(c.out, r)
	case kindKeepAlive:
		s.core.keepAlive(c.session, s.clock())
		c.out = appendReply(c.out, reply{request: number})
	case kindWatch:
		if err := c.mayWatch(prefix); err != nil {
			s.mu.Unlock()
			return fmt.Errorf("%w: %w", errMalformed, err) // no client of this version does that
		}
		c.watch(number, prefix)
	case kindUnwatch:
		c.unwatch(number)
	case kindEnd:
		s.core.endSession(c.session)
		delete(s.sessionConns, c.session)
		s.sessionEnded(c.session, "")
		c.session = nil
		c.closeWith(appendReply(nil, reply{request: number}))
	}
	isWriter := !c.writing && c.hasOutput()
	c.writing = c.writing || isWriter
	full := len(c.out) > maxOutbox
	err = c.account()
	s.mu.Unlock()
	if full {
		err = errors.New("the client does not read its answers")
	}
	if err != nil {
		return err
	}
	if isWriter {
		c.write()
	}
	return nil
}

// maxOutbox is how many bytes of answers may wait for a client that continues to send requests.
const maxOutbox = 1 << 20

// watch begins or restarts the watch with the given number. server.mu is held.
func (c *conn) watch(number int64, prefix string) {
	c.unwatch(number)
	if len(c.watches) == maxWatches {
		c.closeWith(appendExitNotice(nil, codeUnavailable, fmt.Sprintf("the session has %d watches already", maxWatches)))
		return
	}
	prepaid := c.prepaid(prefix)
	if err := c.server.core.budget.claim(int64(watchSize+len(prefix)), true); err != nil && !prepaid {
		_, message := codeOf(err)
		c.closeWith(appendExitNotice(nil, codeUnavailable, "the store is full: "+message))
		return
	}
	if c.watches == nil {
		c.watches = map[int64]*watcher{}
	}
	c.watches[number] = c.server.core.watch(prefix, func() {
		c.ready = append(c.ready, number)
		c.startWriter()
	})
	if prepaid {
		c.server.core.prepay(c.watches[number])
	}
}

// unwatch ends a watch if it exists. server.mu is held.
func (c *conn) unwatch(number int64) {
	if w := c.watches[number]; w != nil {
		c.server.core.unwatch(w)
		delete(c.watches, number)
	}
}

// hasOutput reports whether there is something to send. server.mu is held.
func (c *conn) hasOutput() bool { return len(c.out) > 0 || len(c.ready) > 0 && !c.closing }

// startWriter starts write if there is output and nobody writes yet. server.mu is held, and run has not ended.
func (c *conn) startWriter() {
	if !c.writing && c.hasOutput() {
		c.writing = true
		c.server.running.Go(c.write)
	}
}

// exitNoticeTimeout is how long a client has to read the last frame.
const exitNoticeTimeout = 200 * time.Millisecond

// closeWith sends a last frame, which may be empty, and closes the connection within exitNoticeTimeout. server.mu is
// held.
func (c *conn) closeWith(frame []byte) {
	if c.closing || c.ended {
		return
	}
	c.out = append(c.out, frame...)
	c.closing = true
	c.nc.SetDeadline(time.Now().Add(exitNoticeTimeout))
	c.nc.SetReadDeadline(time.Now()) // makes run return
	if c.startWriter(); !c.writing {
		c.nc.Close()
	}
}

// write sends until there is no more output. Only the goroutine that has set writing may call it.
//
// Answers come after the batches that were available before them: a client that has the answer to its keep-alive has
// received every commit before it.
func (c *conn) write() {
	s := c.server
	var answers []byte // to send once that many more batches have been sent
	batches := 0
	for {
		s.mu.Lock()
		if len(answers) == 0 && !c.hasOutput() {
			c.writing, c.inflight.sending = false, 0
			_ = c.account() // cannot fail: it uses less than before
			if c.ended && c.closing {
				c.nc.Close()
			}
			s.mu.Unlock()
			return
		}
		if len(answers) == 0 {
			answers, c.out, batches = c.out, nil, len(c.ready)
		}
		number, batch, fresh, ok := c.nextBatch()
		batches--
		c.inflight.sending = int64(cap(answers)) + batchSize(batch)
		if c.account() != nil {
			answers, batches, ok = nil, 0, false
		}
		s.mu.Unlock()
		var out []byte
		if ok {
			out = appendBatch(nil, number, batch, fresh)
		}
		if batches <= 0 {
			out, answers = append(out, answers...), nil
		}
		if c.send(out) != nil {
			c.sendExitNotice()
			c.abort()
			answers = nil
		}
	}
}

// sendExitNotice sends the exit notice of a store that was ended for good. The notice reports no change of the store.
// So it is sent even if the output before it cannot become durable.
func (c *conn) sendExitNotice() {
	c.server.mu.Lock()
	notice := c.server.exitNotice
	c.server.mu.Unlock()
	if notice != nil {
		_, _ = c.nc.Write(notice) // closeWith has set a deadline
	}
}

// abort closes a connection that accepts no more data.
func (c *conn) abort() {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.out, c.ready, c.closing = nil, nil, true
	c.nc.Close() // makes run return
}

// nextBatch takes a batch from the watch that has waited longest. server.mu is held.
func (c *conn) nextBatch() (number int64, b Batch, fresh []bool, ok bool) {
	for len(c.ready) > 0 && !c.closing && !ok {
		number = c.ready[0]
		if c.ready = c.ready[1:]; len(c.ready) == 0 {
			c.ready = nil
		}
		if w := c.watches[number]; w != nil {
			b, fresh, ok = c.server.core.take(w)
		}
	}
	return number, b, fresh, ok
}

// sendChunk is how many bytes the client must read within each StallTimeout.
const sendChunk = 64 << 10

// send writes b after the changes that b reports are durable.
func (c *conn) send(b []byte) error {
	s := c.server
	s.sent.count(countFrames(b), len(b))
	if len(b) == 0 {
		return nil
	}
	s.mu.Lock()
	err := s.waitDurable()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	for len(b) > 0 {
		s.mu.Lock()
		if !c.closing {
			c.nc.SetWriteDeadline(time.Now().Add(s.opts.StallTimeout))
		}
		s.mu.Unlock()
		n, err := c.nc.Write(b[:min(len(b), sendChunk)])
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// ipAddr returns the address of one end of a connection, or the zero value if it is not an IP address.
func ipAddr(end net.Addr) netip.AddrPort {
	if a, ok := end.(*net.TCPAddr); ok {
		ap := a.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return netip.AddrPort{}
}
