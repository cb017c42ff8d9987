package tcpstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// maxIdle is how many connections a Client keeps that no call is using. With fewer, a process in which many goroutines
// make short calls would dial for most of them, and in the end run out of ports.
const maxIdle = 64

// take returns a connection for one call. give takes it back.
func (c *Client) acquire(ctx context.Context) (*clientConn, error) {
	if c.slot != nil {
		select {
		case c.slot <- struct{}{}:
		case <-ctx.Done():
			return nil, kvstore.ContextError(ctx)
		case <-c.closing:
			return nil, kvstore.ErrClosed
		}
	}
	l, err := c.idleOrNew(ctx)
	if err != nil && c.slot != nil {
		<-c.slot
	}
	return l, err
}

// pick returns an idle connection that is good, or else a new one.
func (c *Client) idleOrNew(ctx context.Context) (*clientConn, error) {
	for {
		l, err := c.pop()
		switch {
		case err != nil:
			return nil, err
		case l == nil:
			l, err = c.connect(ctx)
			if err = c.classify(ctx, err); errors.Is(err, kvstore.ErrTimeout) {
				err = fmt.Errorf("%w: none was made: %w", kvstore.ErrConnection, err)
			}
			return l, err
		case l.usable():
			return l, nil
		}
		c.drop(l)
		if l.pending {
			return nil, fmt.Errorf("%w before the server confirmed what was written last", kvstore.ErrConnection)
		}
	}
}

// pop takes the idle connection that was used last, if there is one.
func (c *Client) pop() (*clientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed() {
		return nil, kvstore.ErrClosed
	}
	n := len(c.idle) - 1
	if n < 0 {
		return nil, nil
	}
	l := c.idle[n]
	c.idle = c.idle[:n]
	return l, nil
}

// give ends a call's use of l.
func (c *Client) putBack(l *clientConn) {
	if l.broken || !c.push(l) {
		c.drop(l)
	}
	if c.slot != nil {
		<-c.slot
	}
}

// push makes l idle, if there is room for it.
func (c *Client) push(l *clientConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed() || len(c.idle) == maxIdle {
		return false
	}
	c.idle = append(c.idle, l)
	return true
}

// drop closes l.
func (c *Client) drop(l *clientConn) {
	c.untrack(l)
	l.nc.Close()
}

// connect makes a connection that the server has answered. Its error is not classified yet.
func (c *Client) connect(ctx context.Context) (*clientConn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := newClientConn(c.opts.Protocol, !c.opts.unconfirmed)
	if !c.track(l, cancel) {
		return nil, kvstore.ErrClosed
	}
	nc, err := c.open(ctx)
	if err != nil {
		c.untrack(l)
		// The dialer watches the clock itself and may see the deadline before ctx does.
		if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
			<-ctx.Done()
		}
		return nil, err
	}
	l.attach(nc)
	if !c.track(l, func() { nc.Close() }) {
		nc.Close()
		return nil, kvstore.ErrClosed
	}
	if err := c.handshake(ctx, l); err != nil {
		c.drop(l)
		return nil, err
	}
	c.storeLocalAddr(nc)
	return l, nil
}

// remember keeps what LocalAddr returns.
func (c *Client) storeLocalAddr(nc net.Conn) {
	addr, ok := nc.LocalAddr().(*net.TCPAddr)
	if !ok {
		return
	}
	local := addr.AddrPort()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.local = netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
}

// greet begins the conversation as the generation does. Where that is without an answer, it asks for one unless
// the client is to behave as torch's: that a port takes connections does not mean that a store is behind it.
func (c *Client) handshake(ctx context.Context, l *clientConn) error {
	greeting := []query{c.confirmation()}
	switch {
	case c.opts.Protocol == ProtocolV2:
		greeting = []query{{op: opValidate, number: int64(magicNumber)}, c.confirmation()}
	case c.opts.unconfirmed:
		return nil
	}
	_, _, err := l.call(ctx, greeting)
	if errors.Is(err, kvstore.ErrProtocol) {
		return fmt.Errorf("no TCPStore for %s answers at %s: %w", c.opts.Protocol, c.addr, err)
	}
	return err
}

// own makes Close end l by end. It returns false after Close, when the caller has to end l.
func (c *Client) track(l *clientConn, end func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed() {
		return false
	}
	c.conns[l] = end
	return true
}

// disown is the opposite of own.
func (c *Client) untrack(l *clientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, l)
}
