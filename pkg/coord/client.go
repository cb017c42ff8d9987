package coord

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticrun/elasticrun/internal/boottime"
)

// Client is a Store on a remote Server. Dial makes one. Only the caller's KeepAlive keeps its session alive.
//
// When the connection breaks, the client reconnects and resumes its session, which is possible while the session lives.
// SetAddrs sets the other addresses at which the store may be by then. Watches then continue with a Resync. Calls wait
// for the new connection until their ctx ends, but a commit that was in flight returns ErrUnavailable.
type Client struct {
	opts     DialOptions
	session  SessionID
	token    string
	instance string
	ttl      time.Duration

	mu          sync.Mutex  // guards all fields below, and those fields of connections and watches that are marked so
	conn        *clientConn // nil while the connection is broken
	connected   chan struct{}
	brokenSince time.Time // when the connection broke
	refused     time.Time // since when nobody listens at the store's address; zero if not known
	lastNumber  int64     // of requests and watches
	endRequest  int64     // the number of the request that ends the session; 0 before Close
	watches     map[int64]*clientWatch
	err         error
	local       netip.AddrPort
	addrs       []string // other addresses of the store, besides opts.Addr and serving
	serving     string   // the address of the current or latest connection

	began         time.Duration
	answerTimeout atomic.Int64     // of calls, in ns: how long they wait before they suspect the connection
	lost          chan struct{}    // closed when err is set
	suspects      chan *clientConn // connections on which a call gets no answer
	addrsChanged  chan struct{}    // signals that addrs or expected has changed
	expected      string           // see Expect
	expectedUntil time.Time
	cancel        context.CancelFunc // ends run
	running       sync.WaitGroup
}

// Dial connects to a Server and begins a session. It tries once. The caller decides whether to try again, because
// another program may own the address. If the address belongs to a member of the store's group that does not serve now,
// Dial also tries the address that the member names. Its errors are a RefusedError, which is final, and a DialError,
// which matches ErrUnavailable if the obstacle may pass.
func Dial(ctx context.Context, opts DialOptions) (*Client, error) {
	began := boottime.Now()
	var first *established
	err := follow(ctx, &opts, func(ctx context.Context, a *attempt) (err error) {
		first, err = a.open(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	opts.MaxWait = 0 // only this store has the session
	c := &Client{
		opts: opts, session: first.session, token: first.token, instance: first.instance,
		ttl: time.Duration(first.ttl), began: began,
		connected: make(chan struct{}), watches: map[int64]*clientWatch{},
		lost: make(chan struct{}), suspects: make(chan *clientConn, 1), addrsChanged: make(chan struct{}, 1),
	}
	// Close ends the background work. The end of ctx does not.
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = cancel
	cc := c.attach(first)
	c.running.Go(func() { c.run(background, cc) })
	return c, nil
}

// Session returns the session's id.
func (c *Client) Session() SessionID { return c.session }

// TTL returns how long the session lives without a KeepAlive.
func (c *Client) TTL() time.Duration { return c.ttl }

// Began returns a time of package boottime that is just before the session's beginning.
func (c *Client) Began() time.Duration { return c.began }

// InstanceID returns the id that distinguishes the store from another one at the same address.
func (c *Client) InstanceID() string { return c.instance }

// Addr returns the address of the options, HOST:PORT. The store may be at another one; see Addrs.
func (c *Client) Addr() string { return c.opts.Addr }

// Token returns the token with which EndSession ends the session.
func (c *Client) Token() string { return c.token }

// LocalAddr returns the local address of the current or latest connection, or the zero value if it is not an IP
// address.
func (c *Client) LocalAddr() netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.local
}

// RefusedSince returns since when each attempt to reconnect has found that nobody listens at the store's address. It is
// zero while there is a connection, and if the latest attempt had another result.
func (c *Client) RefusedSince() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// Lost is closed when the session is lost.
func (c *Client) Lost() <-chan struct{} { return c.lost }

// Err returns why Lost is closed.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// KeepAlive proves that the caller is alive.
func (c *Client) KeepAlive(ctx context.Context) error {
	return c.callUntilAnswered(ctx, kindKeepAlive)
}

// callUntilAnswered sends a request, which must be idempotent, until it gets an answer.
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

// Commit applies all ops or none.
func (c *Client) Commit(ctx context.Context, guards []Guard, ops []Op) (Revision, error) {
	if err := CheckCommit(guards, ops); err != nil {
		return 0, err
	}
	return c.call(ctx, func(request int64) []byte {
		return appendCommit(nil, commitRequest{request: request, guards: guards, ops: ops})
	})
}

// Close ends the session and all calls. While the connection is broken it waits for the next one, at most for TTL.
func (c *Client) Close(ctx context.Context) error {
	defer c.running.Wait()
	ctx, cancel := context.WithTimeout(ctx, c.ttl)
	defer cancel()
	err := c.callUntilAnswered(ctx, kindEnd)
	c.lose(errClosed)
	c.cancel()
	if errors.Is(err, ErrSessionLost) || errors.Is(c.Err(), ErrUnavailable) {
		return nil // no session is left to end
	}
	if err != nil {
		return fmt.Errorf("end session %s: %w", c.session, err)
	}
	return nil
}

// lose ends the client with err.
func (c *Client) lose(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	close(c.lost)
	if c.conn != nil {
		c.conn.nc.Close() // makes its reader return
	}
}

// call sends a request and waits for the reply.
func (c *Client) call(ctx context.Context, frame func(request int64) []byte) (Revision, error) {
	cc, number, replies, err := c.request(ctx, frame)
	if err != nil {
		return 0, err
	}
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(cc.calls, number)
	}()
	check := time.NewTicker(max(time.Duration(c.answerTimeout.Load()), time.Millisecond))
	defer check.Stop()
	for waiting := true; waiting; {
		select {
		case r := <-replies:
			return r.revision, errOf(r.code, r.message)
		case <-check.C:
			c.suspect(cc)
		case <-cc.detached:
			waiting = false
		case <-ctx.Done():
			waiting = false
		}
	}
	select {
	case r := <-replies: // the reply arrived before the other event
		return r.revision, errOf(r.code, r.message)
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

// request sends a request. It waits while there is no connection.
func (c *Client) request(
	ctx context.Context, frame func(request int64) []byte,
) (_ *clientConn, number int64, replies chan reply, _ error) {
	for {
		c.mu.Lock()
		cc, connected, err := c.conn, c.connected, c.err
		switch {
		case err != nil:
		case ctx.Err() != nil:
			err = unavailable(ctx)
		case cc != nil:
			c.lastNumber++
			number = c.lastNumber
			if err = cc.send(frame(number)); err == nil {
				replies = make(chan reply, 1)
				cc.calls[number] = replies
			}
		}
		c.mu.Unlock()
		if err != nil || replies != nil {
			return cc, number, replies, err
		}
		select {
		case <-connected:
		case <-c.lost:
		case <-ctx.Done():
		}
	}
}

// errBroken is returned by a call during which the connection broke.
var errBroken = fmt.Errorf("%w: the connection broke", ErrUnavailable)
