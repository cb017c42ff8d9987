package coord

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// link is one connection of a Client, with a goroutine that reads and one that writes.
type link struct {
	*greeted
	client *Client
	wake   chan struct{} // there is something to write
	ended  chan struct{} // closed when nothing more is read
	err    error         // why; set before ended is closed
	dead   chan struct{} // closed when it is not the client's any more

	// Guarded by client.mu:
	calls map[int64]chan reply // by their number; each has room for its reply
	out   []byte               // what is still to be written
	heard time.Time            // when the last frame came
}

// attach makes g the client's connection, with all that the client watches.
func (c *Client) attach(g *greeted) *link {
	l := &link{
		greeted: g, client: c, calls: map[int64]chan reply{}, heard: time.Now(),
		wake: make(chan struct{}, 1), ended: make(chan struct{}), dead: make(chan struct{}),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		g.nc.Close() // the reader sees that
	}
	c.link, c.since, c.local = l, time.Time{}, localAddr(g.nc)
	for number, w := range c.watches {
		_ = l.send(appendNumbered(nil, kindWatch, number, w.prefix)) // it is empty: it has room
	}
	close(c.linked)
	c.running.Go(l.write)
	c.running.Go(func() {
		defer close(l.ended)
		l.err = l.read()
	})
	return l
}

// detach takes note that l has ended. mu is not held.
func (c *Client) detach(l *link) {
	l.nc.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link, c.since, c.linked = nil, time.Now(), make(chan struct{})
	for _, w := range c.watches {
		w.gather.cut()
	}
	close(l.dead)
}

// maxPending is how many bytes may wait to be written.
const maxPending = 8 << 20

// send queues a frame. client.mu is held.
func (l *link) send(frame []byte) error {
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
func (l *link) write() {
	for {
		select {
		case <-l.wake:
		case <-l.dead:
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
func (l *link) read() error {
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
			err = l.over(body)
		default: // from a store that is newer than its protocol's version tells
			err = errMalformed
		}
		if err != nil {
			return err
		}
	}
}

func (l *link) reply(body []byte) error {
	r, err := decodeReply(body)
	if err != nil {
		return err
	}
	l.client.mu.Lock()
	l.heard = time.Now()
	if call := l.calls[r.request]; call != nil {
		delete(l.calls, r.request)
		call <- r
	}
	ended := r.request == l.client.end
	l.client.mu.Unlock()
	if ended { // no other connection is to be made for a session that is over
		l.client.lose(errClosed)
		return errOver
	}
	return nil
}

func (l *link) batch(body []byte) error {
	p, err := decodePart(body)
	if err != nil {
		return err
	}
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	l.heard = time.Now()
	if w := l.client.watches[p.watch]; w != nil && w.gather.add(p) {
		w.tell()
	}
	return nil
}

// errOver is that of a connection that the store has ended for good; errTaken that of one whose session another connection
// of this client has: one that was given up, perhaps.
var (
	errOver  = errors.New("it is over")
	errTaken = errors.New("it was taken over")
)

func (l *link) over(body []byte) error {
	in := &fields{b: body}
	why, line := code(in.byte()), in.string()
	if err := in.end(); err != nil {
		return err
	}
	l.client.mu.Lock()
	old := l.client.link != l
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
func (c *Client) run(ctx context.Context, l *link) {
	for l != nil {
		select {
		case <-l.ended:
			c.detach(l)
			if errors.Is(l.err, errMalformed) {
				c.lose(&wrapped{"its store does not keep to the protocol", ErrUnavailable})
			}
			l = c.again(ctx)
		case doubted := <-c.doubts:
			if doubted == l {
				l = c.replace(ctx, l)
			}
		}
	}
}

// again makes another connection for the session: at once, and then as pause says. It returns nil if there is none to
// be had.
func (c *Client) again(ctx context.Context) *link {
	c.mu.Lock()
	since := c.since
	c.mu.Unlock()
	for c.Err() == nil && ctx.Err() == nil {
		if got := c.resume(ctx); got != nil {
			return c.attach(got)
		}
		select {
		case <-time.After(pause(time.Since(since))):
		case <-c.lost:
		case <-ctx.Done():
		}
	}
	return nil
}

// pause is how long to wait before the next attempt when the connection has been broken for that long: little at first, when
// the network may be back at once, more when only a store that comes back can help.
func pause(broken time.Duration) time.Duration {
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
func (c *Client) resume(ctx context.Context) *greeted {
	g := greeting{opts: &c.opts, token: c.token, instance: c.instance}
	got, err := g.begin(ctx)
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
func (c *Client) replace(ctx context.Context, l *link) *link {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	attempts := make(chan *greeted, 1)
	c.running.Go(func() { attempts <- c.resume(ctx) })
	var got *greeted
	select {
	case got = <-attempts:
	case <-l.ended:
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
func (c *Client) doubt(l *link) {
	c.mu.Lock()
	silent := time.Since(l.heard) >= c.ttl/4
	c.mu.Unlock()
	if !silent {
		return
	}
	select {
	case c.doubts <- l:
	default: // it is being seen to
	}
}
