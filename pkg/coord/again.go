package coord

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

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
