package coord

import (
	"context"
)

// clientWatch is a watch of a Client.
type clientWatch struct {
	prefix  string
	changed chan struct{}
	gather  gather // guarded by the client's mu
}

func (w *clientWatch) tell() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Watch calls see with what is and what changes beneath prefix.
func (c *Client) Watch(ctx context.Context, prefix string, see func(Batch) error) error {
	w := &clientWatch{prefix: prefix, changed: make(chan struct{}, 1)}
	c.mu.Lock()
	c.numbers++
	number := c.numbers
	err := c.err
	if err == nil && c.link != nil {
		err = c.link.send(appendNumbered(nil, kindWatch, number, prefix))
	}
	if err == nil {
		c.watches[number] = w
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	defer c.unwatch(number)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.lost:
			return c.Err()
		case <-w.changed:
		}
		c.mu.Lock()
		b, ok := w.gather.take()
		lost := c.err != nil
		c.mu.Unlock()
		if ok && !lost && ctx.Err() == nil {
			if err := see(b); err != nil {
				return err
			}
		}
	}
}

func (c *Client) unwatch(number int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.watches, number)
	if c.link != nil {
		_ = c.link.send(appendNumbered(nil, kindUnwatch, number)) // else what still comes is ignored
	}
}
