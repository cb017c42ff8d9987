package coord

import (
	"errors"
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
