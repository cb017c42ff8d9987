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

// maxIdle is how many idle connections a Client keeps. With fewer, a process in which many goroutines make short calls
// would dial for most of them and finally run out of ports.
const maxIdle = 64

// acquire returns a connection for one call. The caller returns it with putBack.
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

// idleOrNew returns a usable idle connection, or else a new one.
func (c *Client) idleOrNew(ctx context.Context) (*clientConn, error) {
	for {
		l, err := c.pop()
		switch {
		case err != nil:
			return nil, err
		case l == nil:
			l, err = c.connect(ctx)
			if err = c.classify(ctx, err); errors.Is(err, kvstore.ErrTimeout) {
				err = fmt.Errorf("%w: no connection was made: %w", kvstore.ErrConnection, err)
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

// pop removes and returns the idle connection that was used last, or nil.
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

// putBack ends a call's use of l.
func (c *Client) putBack(l *clientConn) {
	if l.broken || !c.push(l) {
		c.drop(l)
	}
	if c.slot != nil {
		<-c.slot
	}
}

// push makes l idle. It returns false if there is no room.
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

// connect makes a connection and waits for the server's first reply. Its error is not classified yet.
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

// storeLocalAddr stores the address that LocalAddr returns.
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

// handshake sends the first requests of the protocol, and one that has a reply, because an open port is no proof of a
// store. An unconfirmed client of protocol 1 sends nothing, as torch 1.x does.
func (c *Client) handshake(ctx context.Context, l *clientConn) error {
	requests := []query{c.confirmation()}
	switch {
	case c.opts.Protocol == ProtocolV2:
		requests = []query{{op: opValidate, number: int64(magicNumber)}, c.confirmation()}
	case c.opts.unconfirmed:
		return nil
	}
	_, _, err := l.call(ctx, requests)
	if err == nil && l.broken {
		if err = ctx.Err(); err == nil {
			err = fmt.Errorf("%w: more bytes than the reply", kvstore.ErrProtocol)
		}
	}
	if errors.Is(err, kvstore.ErrProtocol) {
		return fmt.Errorf("no TCPStore of %s answers at %s: %w", c.opts.Protocol, c.addr, err)
	}
	return err
}

// track makes Close call end for l. It returns false after Close; the caller must end l then.
func (c *Client) track(l *clientConn, end func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed() {
		return false
	}
	c.conns[l] = end
	return true
}

// untrack undoes track.
func (c *Client) untrack(l *clientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, l)
}
