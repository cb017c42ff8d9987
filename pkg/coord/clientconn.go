package coord

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// link is one connection of a Client, with a goroutine that reads and one that writes.
type clientConn struct {
	*established
	client   *Client
	wake     chan struct{} // there is something to write
	readDone chan struct{} // closed when nothing more is read
	err      error         // why; set before ended is closed
	detached chan struct{} // closed when it is not the client's any more

	// Guarded by client.mu:
	calls     map[int64]chan reply // by their number; each has room for its reply
	out       []byte               // what is still to be written
	lastFrame time.Time            // when the last frame came
}

// attach makes g the client's connection, with all that the client watches.
func (c *Client) attach(g *established) *clientConn {
	l := &clientConn{
		established: g, client: c, calls: map[int64]chan reply{}, lastFrame: time.Now(),
		wake: make(chan struct{}, 1), readDone: make(chan struct{}), detached: make(chan struct{}),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		g.nc.Close() // the reader sees that
	}
	c.conn, c.brokenSince, c.local = l, time.Time{}, localAddr(g.nc)
	for number, w := range c.watches {
		_ = l.send(appendNumbered(nil, kindWatch, number, w.prefix)) // it is empty: it has room
	}
	close(c.connected)
	c.running.Go(l.write)
	c.running.Go(func() {
		defer close(l.readDone)
		l.err = l.read()
	})
	return l
}

// detach takes note that l has ended. mu is not held.
func (c *Client) detach(l *clientConn) {
	l.nc.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.brokenSince, c.connected = nil, time.Now(), make(chan struct{})
	for _, w := range c.watches {
		w.merger.dropPartial()
	}
	close(l.detached)
}

// maxPending is how many bytes may wait to be written.
const maxPending = 8 << 20

// send queues a frame. client.mu is held.
func (l *clientConn) send(frame []byte) error {
	if len(l.out)+len(frame) > maxPending {
		return &wrapped{"too much waits to be sent", ErrUnavailable}
	}
	l.out = append(l.out, frame...)
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return nil
}

// write writes what is queued until the connection ends.
func (l *clientConn) write() {
	for {
		select {
		case <-l.wake:
		case <-l.detached:
			return
		}
		l.client.mu.Lock()
		out := l.out
		l.out = nil
		l.client.mu.Unlock()
		if _, err := l.nc.Write(out); err != nil {
			l.nc.Close() // the reader ends
		}
	}
}

// read takes what the store sends until the connection ends.
func (l *clientConn) read() error {
	scratch := make([]byte, frameHeader)
	for {
		k, body, err := readFrame(l.in, maxFrame, scratch)
		if err != nil {
			return err
		}
		switch k {
		case kindReply:
			err = l.reply(body)
		case kindBatch:
			err = l.batch(body)
		case kindOver:
			err = l.sessionOver(body)
		default: // from a store that is newer than its protocol's version tells
			err = errMalformed
		}
		if err != nil {
			return err
		}
	}
}

func (l *clientConn) reply(body []byte) error {
	r, err := decodeReply(body)
	if err != nil {
		return err
	}
	l.client.mu.Lock()
	l.lastFrame = time.Now()
	if call := l.calls[r.request]; call != nil {
		delete(l.calls, r.request)
		call <- r
	}
	ended := r.request == l.client.endRequest
	l.client.mu.Unlock()
	if ended { // no other connection is to be made for a session that is over
		l.client.lose(errClosed)
		return errOver
	}
	return nil
}

func (l *clientConn) batch(body []byte) error {
	p, err := decodePart(body)
	if err != nil {
		return err
	}
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	l.lastFrame = time.Now()
	if w := l.client.watches[p.watch]; w != nil && w.merger.add(p) {
		w.notify()
	}
	return nil
}

// errOver is that of a connection that the store has ended for good; errTaken that of one whose session another connection
// of this client has: one that was given up, perhaps.
var (
	errOver  = errors.New("it is over")
	errTaken = errors.New("it was taken over")
)

func (l *clientConn) sessionOver(body []byte) error {
	in := &fields{b: body}
	why, line := resultCode(in.byte()), in.string()
	if err := in.end(); err != nil {
		return err
	}
	l.client.mu.Lock()
	old := l.client.conn != l
	l.client.mu.Unlock()
	if old || why == codeTaken {
		return errTaken
	}
	err := errOf(why, line)
	if !errors.Is(err, ErrSessionLost) && !errors.Is(err, ErrUnavailable) {
		return errMalformed
	}
	l.client.lose(err)
	return errOver
}

// run sees to it that the client has a connection, of which l is the first, until it ends.
func (c *Client) run(ctx context.Context, l *clientConn) {
	for l != nil {
		select {
		case <-l.readDone:
			c.detach(l)
			if errors.Is(l.err, errMalformed) {
				c.lose(&wrapped{"its store does not keep to the protocol", ErrUnavailable})
			}
			l = c.reconnect(ctx)
		case doubted := <-c.suspects:
			if doubted == l {
				l = c.replace(ctx, l)
			}
		}
	}
}

// again makes another connection for the session: at once, and then as pause says. It returns nil if there is none to
// be had.
func (c *Client) reconnect(ctx context.Context) *clientConn {
	c.mu.Lock()
	since := c.brokenSince
	c.mu.Unlock()
	for c.Err() == nil && ctx.Err() == nil {
		if got := c.resume(ctx); got != nil {
			return c.attach(got)
		}
		select {
		case <-time.After(reconnectDelay(time.Since(since))):
		case <-c.lost:
		case <-ctx.Done():
		}
	}
	return nil
}

// pause is how long to wait before the next attempt when the connection has been broken for that long: little at first, when
// the network may be back at once, more when only a store that comes back can help.
func reconnectDelay(broken time.Duration) time.Duration {
	least := 20 * time.Millisecond
	switch {
	case broken > 10*time.Second:
		least = 500 * time.Millisecond
	case broken > time.Second:
		least = 150 * time.Millisecond
	}
	return least + rand.N(3*least/2)
}

// resume tries once to make a connection for the session, and loses it where that can never be.
func (c *Client) resume(ctx context.Context) *established {
	g := attempt{opts: &c.opts, token: c.token, instance: c.instance}
	got, err := g.open(ctx)
	var refused *RefusedError
	switch {
	case err == nil:
		return got
	case errors.Is(err, ErrSessionLost):
		c.lose(err)
	case errors.Is(err, ErrReplaced):
		line := fmt.Sprintf("the store at %s was lost: another instance, %s, is there now", c.opts.Addr, g.instance)
		c.lose(&wrapped{line, ErrReplaced})
	case errors.As(err, &refused):
		c.lose(&wrapped{"the store was lost: " + err.Error(), ErrUnavailable})
	}
	return nil
}

// replace tries once to have another connection than l, over which a call is not answered: the way that l takes may
// be gone for good though there is another, and TCP does not tell. l is not closed before: it may only be slow, and the
// attempt may fail. It returns the connection that the client has then.
func (c *Client) replace(ctx context.Context, l *clientConn) *clientConn {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	attempts := make(chan *established, 1)
	c.running.Go(func() { attempts <- c.resume(ctx) })
	var got *established
	select {
	case got = <-attempts:
	case <-l.readDone:
		if !errors.Is(l.err, errTaken) {
			cancel() // again begins at once
		}
		got = <-attempts
	}
	if got == nil {
		return l
	}
	c.detach(l)
	return c.attach(got)
}

// doubt is called when a call was not answered over l for some time.
func (c *Client) suspect(l *clientConn) {
	c.mu.Lock()
	silent := time.Since(l.lastFrame) >= c.ttl/4
	c.mu.Unlock()
	if !silent {
		return
	}
	select {
	case c.suspects <- l:
	default: // it is being seen to
	}
}
