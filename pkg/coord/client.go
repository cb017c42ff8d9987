package coord

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/internal/boottime"
)

// Client is a Store that is a Server's, elsewhere. Use Dial. Its session is kept alive by its user alone.
//
// When its connection breaks it makes another and resumes the session, which is possible for as long as the session lives;
// watches go on with a Resync. Calls wait for that until their ctx ends, but a commit that was under way is
// ErrUnavailable.
type Client struct {
	opts     DialOptions
	session  SessionID
	token    string
	instance string
	ttl      time.Duration

	mu          sync.Mutex  // guards all that follows, and the fields of links and watches that say so
	conn        *clientConn // nil while the connection is broken
	connected   chan struct{}
	brokenSince time.Time // when it broke
	lastNumber  int64     // requests and watches so far
	endRequest  int64     // the request that ends the session, as soon as there is one
	watches     map[int64]*clientWatch
	err         error
	local       netip.AddrPort

	began    time.Duration
	lost     chan struct{}      // closed when err is set
	suspects chan *clientConn   // over which a call is not answered
	cancel   context.CancelFunc // ends run
	running  sync.WaitGroup
}

// Dial connects to a Server and begins a session there. It tries once: what comes of an address that may be
// somebody else's, the caller knows best. Its errors are a RefusedError, which will not pass, and a DialError, which is
// ErrUnavailable if it may.
func Dial(ctx context.Context, opts DialOptions) (*Client, error) {
	began := boottime.Now()
	g := attempt{opts: &opts, detectTorchStore: true}
	first, err := g.open(ctx)
	if err != nil {
		return nil, err
	}
	c := &Client{
		opts: opts, session: first.session, token: first.token, instance: first.instance,
		ttl: time.Duration(first.ttl), began: began,
		connected: make(chan struct{}), watches: map[int64]*clientWatch{},
		lost: make(chan struct{}), suspects: make(chan *clientConn, 1),
	}
	// What goes on in the background ends by Close, not with ctx.
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = cancel
	l := c.attach(first)
	c.running.Go(func() { c.run(background, l) })
	return c, nil
}

// Session returns the session's id.
func (c *Client) Session() SessionID { return c.session }

// TTL returns how long the session lives without a KeepAlive.
func (c *Client) TTL() time.Duration { return c.ttl }

// Began returns a time of package boottime at which the session had not begun yet, as near to its beginning as is known.
func (c *Client) Began() time.Duration { return c.began }

// InstanceID returns what tells the store from another one at the same address.
func (c *Client) InstanceID() string { return c.instance }

// Addr returns the store's address, HOST:PORT.
func (c *Client) Addr() string { return c.opts.Addr }

// Token lets EndSession end the session.
func (c *Client) Token() string { return c.token }

// LocalAddr returns the address of this end of the connection, or the last one; the zero value if that is none of IP.
func (c *Client) LocalAddr() netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.local
}

// Lost is closed when the session is lost.
func (c *Client) Lost() <-chan struct{} { return c.lost }

// Err says why Lost is closed.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// KeepAlive proves that the caller is alive.
func (c *Client) KeepAlive(ctx context.Context) error {
	return c.callUntilAnswered(ctx, kindKeepAlive)
}

// repeat makes a request, that may be made twice, until it is answered.
func (c *Client) callUntilAnswered(ctx context.Context, k kind) error {
	for {
		_, err := c.call(ctx, func(request int64) []byte {
			if k == kindEnd {
				c.endRequest = request
			}
			return appendNumbered(nil, k, request)
		})
		if !errors.Is(err, errBroken) {
			return err
		}
	}
}

// Commit does all ops, or none.
func (c *Client) Commit(ctx context.Context, guards []Guard, ops []Op) (Revision, error) {
	if err := CheckCommit(guards, ops); err != nil {
		return 0, err
	}
	return c.call(ctx, func(request int64) []byte {
		return appendCommit(nil, commitRequest{request: request, guards: guards, ops: ops})
	})
}

// Close ends the session and all calls. While the connection is broken it waits for another, at most for TTL.
func (c *Client) Close(ctx context.Context) error {
	defer c.running.Wait()
	ctx, cancel := context.WithTimeout(ctx, c.ttl)
	defer cancel()
	err := c.callUntilAnswered(ctx, kindEnd)
	c.lose(errClosed)
	c.cancel()
	if errors.Is(err, ErrSessionLost) || errors.Is(c.Err(), ErrUnavailable) {
		return nil // there is no session that could be ended
	}
	if err != nil {
		return fmt.Errorf("end session %s: %w", c.session, err)
	}
	return nil
}

// lose ends the client for err.
func (c *Client) lose(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	close(c.lost)
	if c.conn != nil {
		c.conn.nc.Close() // its reader ends
	}
}

// await returns the connection, as soon as there is one.
func (c *Client) waitConn(ctx context.Context) (*clientConn, error) {
	for {
		c.mu.Lock()
		l, linked, err := c.conn, c.connected, c.err
		c.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, unavailable(ctx)
		case l != nil:
			return l, nil
		}
		select {
		case <-linked:
		case <-c.lost:
		case <-ctx.Done():
		}
	}
}

// call sends a request and waits for the reply.
func (c *Client) call(ctx context.Context, frame func(request int64) []byte) (Revision, error) {
	l, number, replies, err := c.request(ctx, frame)
	if err != nil {
		return 0, err
	}
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(l.calls, number)
	}()
	patience := time.NewTicker(max(c.ttl/4, time.Millisecond))
	defer patience.Stop()
	for waiting := true; waiting; {
		select {
		case r := <-replies:
			return r.revision, errOf(r.code, r.line)
		case <-patience.C:
			c.suspect(l)
		case <-l.detached:
			waiting = false
		case <-ctx.Done():
			waiting = false
		}
	}
	select {
	case r := <-replies: // it came before that
		return r.revision, errOf(r.code, r.line)
	default:
	}
	if ctx.Err() != nil {
		return 0, unavailable(ctx)
	}
	if err := c.Err(); err != nil {
		return 0, err
	}
	return 0, errBroken
}

// request sends a request on the connection, as soon as there is one.
func (c *Client) request(ctx context.Context, frame func(request int64) []byte) (*clientConn, int64, chan reply, error) {
	for {
		l, err := c.waitConn(ctx)
		if err != nil {
			return nil, 0, nil, err
		}
		number, replies, err := c.requestOn(l, frame)
		if err != nil || replies != nil {
			return l, number, replies, err
		}
	}
}

// requestOn sends a request on l. It returns no channel if that is not the connection any more.
func (c *Client) requestOn(l *clientConn, frame func(request int64) []byte) (int64, chan reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != l {
		return 0, nil, nil
	}
	c.lastNumber++
	if err := l.send(frame(c.lastNumber)); err != nil {
		return 0, nil, err
	}
	replies := make(chan reply, 1)
	l.calls[c.lastNumber] = replies
	return c.lastNumber, replies, nil
}

// errBroken is that of a call during which the connection broke.
var errBroken = &wrapped{"the connection broke", ErrUnavailable}
