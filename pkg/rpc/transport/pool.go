package transport

import (
	"context"
	"crypto/tls"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
)

const (
	// connectTimeout is how long a connection may take until the peer speaks gRPC.
	connectTimeout = 10 * time.Second
	// minQuiet is the least time between two signs of life that gRPC lets a client ask for.
	minQuiet = 10 * time.Second
)

// ClientOptions are the options of a Pool.
type ClientOptions struct {
	// TLS is spoken with every peer; nil means plain connections. Without a ServerName in it a peer's certificate must be for the host
	// of its address.
	TLS *tls.Config

	// MaxMessage is the size of a request or an answer in bytes; a call with a larger one fails with [ErrTooLarge], where it
	// is the request before anything is sent. Zero means 64 MiB; 2 GiB is the most.
	MaxMessage int

	// Quiet is for how long a peer that owes an answer, or is watched, may say nothing until it is asked for a sign of life; zero
	// means 10 s, the least that gRPC can do. Timeout is how long it may take for that, or for taking what was sent to it; then the
	// connection has failed. Zero means 2 s. A peer whose kernel is silent too, a host that lost its power or its network, is
	// noticed earlier, on Linux within about Timeout and another second.
	Quiet, Timeout time.Duration

	// Logger gets a line at level debug for each connection that could not be made. The zero Logger is silent.
	Logger zerolog.Logger
}

// Pool has one connection to each peer that was called, by its address, HOST:PORT. It is safe for concurrent use. Use NewPool.
type Pool struct {
	opts ClientOptions
	dial []grpc.DialOption

	mu     sync.Mutex
	closed bool
	peers  map[string]*conn   // those that calls use
	conns  map[*conn]struct{} // all, with those of probes, and those that were given up but have calls yet
}

// NewPool returns a Pool without connections.
func NewPool(opts ClientOptions) *Pool {
	opts.MaxMessage = messageLimit(opts.MaxMessage)
	opts.Quiet = max(opts.Quiet, minQuiet)
	if opts.Timeout <= 0 {
		opts.Timeout = 2 * time.Second
	}
	return &Pool{opts: opts, dial: dialOptions(opts), peers: map[string]*conn{}, conns: map[*conn]struct{}{}}
}

// dialOptions are what all connections of a pool have in common.
func dialOptions(opts ClientOptions) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(clientCredentials(opts.TLS)),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableHealthCheck(),
		// Who has failed to connect is given up before gRPC tries again by itself, which it does after a second.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: opts.Quiet, Timeout: opts.Timeout}),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(opts.MaxMessage)),
	}
}

// Call sends a request, whose parts are sent one after the other, and returns the answer, which is the caller's. Nobody may
// change the parts before Call has returned, nor, when it has failed, after: they may still be on their way. Without a deadline
// the call lasts until it is answered or the peer is lost.
func (p *Pool) Call(ctx context.Context, addr string, request ...[]byte) ([]byte, error) {
	c, err := p.acquire(addr)
	if err != nil {
		return nil, err
	}
	defer p.release(c)
	return c.call(ctx, request)
}

// Probe is a Call over a connection of its own, which is closed afterwards: what it finds is new.
func (p *Pool) Probe(ctx context.Context, addr string, request ...[]byte) ([]byte, error) {
	p.mu.Lock()
	c, err := p.connect(addr)
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	defer p.release(c)
	return c.call(ctx, request)
}

// Keep forgets, as Forget does, all peers whose address is not in addrs.
func (p *Pool) Keep(addrs map[string]bool) {
	p.mu.Lock()
	var former []string
	for addr := range p.peers {
		if !addrs[addr] {
			former = append(former, addr)
		}
	}
	p.mu.Unlock()
	for _, addr := range former {
		p.Forget(addr)
	}
}

// Forget lets no further call use the connection to a peer, if there is one. It is closed when the last call or watch over it has ended, at
// once where there is none. A call that is made nevertheless makes a new one.
func (p *Pool) Forget(addr string) {
	p.mu.Lock()
	c := p.peers[addr]
	if c == nil {
		p.mu.Unlock()
		return
	}
	p.giveUp(c)
	last := p.part(c)
	p.mu.Unlock()
	if last {
		c.close(ErrClosed)
	}
}

// Close closes all connections, without a goodbye: watches that shall end with one have to be ended first. What is under way
// fails with [ErrClosed], and so does every later call. The error is always nil.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	conns := slices.Collect(maps.Keys(p.conns))
	clear(p.peers)
	clear(p.conns)
	p.mu.Unlock()
	for _, c := range conns {
		c.close(ErrClosed)
	}
	return nil
}

// acquire returns the connection to a peer, which the caller has to release.
func (p *Pool) acquire(addr string) (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.peers[addr]
	if c != nil && !c.failed() {
		c.uses++
		return c, nil
	}
	if c != nil { // those who saw it fail have not released it yet, and will close it
		p.giveUp(c)
	}
	c, err := p.connect(addr)
	if err == nil {
		c.pooled = true
		p.peers[addr] = c
	}
	return c, err
}

// connect returns a connection for one use. It is made when it is used first. The pool's lock is held.
func (p *Pool) connect(addr string) (*conn, error) {
	if p.closed {
		return nil, &Error{Addr: addr, Err: ErrClosed}
	}
	c, err := newConn(addr, p.opts, p.dial)
	if err != nil {
		return nil, err
	}
	c.uses = 1
	p.conns[c] = struct{}{}
	return c, nil
}

// release ends one use of a connection, and closes it after the last one, if it is of no more use.
func (p *Pool) release(c *conn) {
	p.mu.Lock()
	c.uses--
	if c.failed() || c.uses == 0 && c.unmade() {
		p.giveUp(c)
	}
	last := p.part(c)
	p.mu.Unlock()
	if last {
		c.close(ErrClosed)
	}
}

// part takes a connection out that is of no more use, and tells whether it was there: then it is to be closed. The lock is held.
func (p *Pool) part(c *conn) bool {
	_, open := p.conns[c]
	last := open && c.uses == 0 && !c.pooled
	if last {
		delete(p.conns, c)
	}
	return last
}

// giveUp lets later calls make a new connection. Those that use this one go on. The lock is held.
func (p *Pool) giveUp(c *conn) {
	c.pooled = false
	if p.peers[c.addr] == c {
		delete(p.peers, c.addr)
	}
}

// failed tells that the last attempt to connect has failed: gRPC would hold that against all calls until it has tried again by itself.
func (c *conn) failed() bool { return c.grpc.GetState() == connectivity.TransientFailure }

// unmade tells that gRPC is connecting: it would go on, and try again for ever, for nobody.
func (c *conn) unmade() bool { return !c.serves.Load() && c.grpc.GetState() == connectivity.Connecting }
