package coord

import (
	"errors"
	"fmt"
	"time"
)

// clientConn is one connection of a Client. One goroutine reads from it and one writes to it.
type clientConn struct {
	*established
	client   *Client
	wake     chan struct{} // signals that out is not empty
	readDone chan struct{} // closed when the reader has returned
	err      error         // why the reader has returned; set before readDone is closed
	detached chan struct{} // closed when the connection no longer belongs to the client

	// Guarded by client.mu:
	calls     map[int64]chan reply // by request number; each channel has room for its reply
	out       []byte               // data to write
	lastFrame time.Time            // when the last frame arrived
}

// attach makes e the client's connection and restarts the client's watches on it.
func (c *Client) attach(e *established) *clientConn {
	cc := &clientConn{
		established: e, client: c, calls: map[int64]chan reply{}, lastFrame: time.Now(),
		wake: make(chan struct{}, 1), readDone: make(chan struct{}), detached: make(chan struct{}),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		e.nc.Close() // makes the reader return
	}
	c.conn, c.brokenSince, c.refused, c.local = cc, time.Time{}, time.Time{}, ipAddr(e.nc.LocalAddr())
	c.serving = e.addr
	c.setAnswerTimeout()
	for number, w := range c.watches {
		_ = cc.send(appendNumbered(nil, kindWatch, number, w.prefix)) // cannot fail: the queue is empty
	}
	close(c.connected)
	c.running.Go(cc.write)
	c.running.Go(func() {
		defer close(cc.readDone)
		cc.err = cc.read()
	})
	return cc
}

// detach removes cc, which has ended, from the client. The caller must not hold mu.
func (c *Client) detach(cc *clientConn) {
	cc.nc.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.brokenSince, c.connected = nil, time.Now(), make(chan struct{})
	for _, w := range c.watches {
		w.merger.dropPartial()
	}
	close(cc.detached)
}

// maxPending is how many bytes may wait to be written.
const maxPending = 8 << 20

// send queues a frame. client.mu is held.
func (cc *clientConn) send(frame []byte) error {
	if len(cc.out)+len(frame) > maxPending {
		return fmt.Errorf("%w: too much data waits to be sent", ErrUnavailable)
	}
	cc.out = append(cc.out, frame...)
	signal(cc.wake)
	return nil
}

// brokenReadTimeout is how long the reader may read the data that arrived before the connection broke.
const brokenReadTimeout = time.Second

// write writes queued data until the connection ends. A store that has ended accepts no more data, but its last frames
// may have arrived and wait for the reader: a process that was paused writes before it reads. So a write error does not
// close the connection.
func (cc *clientConn) write() {
	for {
		select {
		case <-cc.wake:
		case <-cc.detached:
			return
		}
		cc.client.mu.Lock()
		out := cc.out
		cc.out = nil
		cc.client.mu.Unlock()
		if _, err := cc.nc.Write(out); err != nil {
			_ = cc.nc.SetReadDeadline(time.Now().Add(brokenReadTimeout)) // makes the reader return
			return
		}
	}
}

// read handles the store's frames until the connection ends.
func (cc *clientConn) read() error {
	scratch := make([]byte, frameHeader)
	for {
		k, body, err := readFrame(cc.nc, maxFrame, scratch)
		if err != nil {
			return err
		}
		switch k {
		case kindReply:
			err = cc.reply(body)
		case kindBatch:
			err = cc.batch(body)
		case kindExitNotice:
			err = cc.exitNotice(body)
		default: // the store is newer than its protocol version says
			err = errMalformed
		}
		if err != nil {
			return err
		}
	}
}

func (cc *clientConn) reply(body []byte) error {
	r, err := decodeReply(body)
	if err != nil {
		return err
	}
	cc.client.mu.Lock()
	cc.lastFrame = time.Now()
	if call := cc.calls[r.request]; call != nil {
		delete(cc.calls, r.request)
		call <- r
	}
	ended := r.request == cc.client.endRequest
	cc.client.mu.Unlock()
	if ended { // the session has ended: the client must not reconnect
		cc.client.lose(errClosed)
		return errEnded
	}
	return nil
}

func (cc *clientConn) batch(body []byte) error {
	p, err := decodePart(body)
	if err != nil {
		return err
	}
	cc.client.mu.Lock()
	defer cc.client.mu.Unlock()
	cc.lastFrame = time.Now()
	if w := cc.client.watches[p.watch]; w != nil && w.merger.add(p) {
		signal(w.changed)
	}
	return nil
}

// errEnded ends the reader of a connection whose session or store has ended. errTaken ends the reader of a connection
// whose session this client has resumed on another connection.
var (
	errEnded = errors.New("it is over")
	errTaken = errors.New("it was taken over")
)

func (cc *clientConn) exitNotice(body []byte) error {
	in := &fields{b: body}
	code, message := resultCode(in.byte()), in.string()
	if err := in.end(); err != nil {
		return err
	}
	cc.client.mu.Lock()
	old := cc.client.conn != cc
	cc.client.mu.Unlock()
	if old || code == codeTaken {
		return errTaken
	}
	err := errOf(code, message)
	if !errors.Is(err, ErrSessionLost) && !errors.Is(err, ErrUnavailable) {
		return errMalformed
	}
	cc.client.lose(err)
	return errEnded
}
