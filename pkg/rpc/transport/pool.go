package transport

import (
	"cmp"
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
	// connectTimeout is the time within which a peer must speak gRPC.
	connectTimeout = 10 * time.Second
	// minQuiet is the shortest keep-alive interval that gRPC allows a client.
	minQuiet = 10 * time.Second
)

// ClientOptions are the options of a Pool.
type ClientOptions struct {
	// TLS is the configuration for every peer; nil means plain connections. Without a ServerName, a peer's
	// certificate must be valid for the host of its address.
	TLS *tls.Config

	// MaxMessage is the largest size of a request or an answer in bytes. A call with a larger one fails with
	// [ErrTooLarge]; a larger request is not sent. Zero means 64 MiB; the maximum is 2 GiB.
	MaxMessage int

	// Quiet is how long a peer that owes an answer, or that is watched, may be silent until it gets a keep-alive
	// ping. Zero means 10 s, gRPC's minimum. Timeout is how long the peer may take to answer the ping, or to
	// acknowledge data. After that the connection has failed. Zero means 2 s. A host that lost its power or its
	// network is detected earlier, on Linux within about Timeout and one second.
	Quiet, Timeout time.Duration

	// Logger logs each failed attempt to connect at level debug. The zero Logger logs nothing.
	Logger zerolog.Logger
}

// Pool keeps one connection to each peer that was called, by its address HOST:PORT. It is safe for concurrent use.
// Use NewPool.
type Pool struct {
	opts ClientOptions
	dial []grpc.DialOption

	mu     sync.Mutex
	closed bool
	peers  map[string]*conn   // connections that calls use, by address
	conns  map[*conn]struct{} // all connections, including those of probes, and abandoned ones that still have calls
}

// NewPool returns a Pool without connections.
func NewPool(opts ClientOptions) *Pool {
	opts.MaxMessage = messageLimit(opts.MaxMessage)
	opts.Quiet = max(opts.Quiet, minQuiet)
	opts.Timeout = cmp.Or(max(opts.Timeout, 0), 2*time.Second)
	return &Pool{opts: opts, dial: dialOptions(opts), peers: map[string]*conn{}, conns: map[*conn]struct{}{}}
}

// dialOptions returns the options that all connections of a pool share.
func dialOptions(opts ClientOptions) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(clientCredentials(opts.TLS)),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableHealthCheck(),
		// Pool abandons a connection that failed before gRPC retries it, which gRPC does after a second.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: opts.Quiet, Timeout: opts.Timeout}),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(opts.MaxMessage)),
	}
}

// Call sends a request and returns the answer, which belongs to the caller. It sends the parts of the request one
// after the other. Nobody may change the parts before Call has returned, nor after it has failed, because they can
// still be under way. Without a deadline the call lasts until the peer answers or is lost.
func (p *Pool) Call(ctx context.Context, addr string, request ...[]byte) ([]byte, error) {
	c, err := p.acquire(addr)
	if err != nil {
		return nil, err
	}
	defer p.release(c)
	return c.call(ctx, request)
}

// Probe is Call over a new connection, which it closes afterwards. So its result does not depend on earlier
// connections.
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

// Keep calls Forget for all peers whose address is not in addrs.
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

// Forget makes further calls use a new connection to the peer. The present connection closes when its last call or
// watch has ended.
func (p *Pool) Forget(addr string) {
	p.mu.Lock()
	c := p.peers[addr]
	if c != nil {
		p.giveUp(c)
	}
	p.unlockAndClose(c)
}

// Close closes all connections without a goodbye; callers end their watches first if they want one. Calls under way
// and later calls fail with [ErrClosed]. The error is always nil.
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

// acquire returns the connection to a peer. The caller must release it.
func (p *Pool) acquire(addr string) (*conn, error) {
	p.mu.Lock()
	former := p.peers[addr]
	if former != nil && !former.failed() {
		former.uses++
		p.mu.Unlock()
		return former, nil
	}
	if former != nil { // its users close it when they release it
		p.giveUp(former)
	}
	c, err := p.connect(addr)
	if err == nil {
		c.pooled = true
		p.peers[addr] = c
	}
	p.unlockAndClose(former)
	return c, err
}

// connect returns a connection for one use. gRPC dials it at the first use. The caller holds the pool's lock.
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

// release ends one use of a connection. It closes an abandoned connection after the last use.
func (p *Pool) release(c *conn) {
	p.mu.Lock()
	c.uses--
	if c.failed() || c.uses == 0 && c.unmade() {
		p.giveUp(c)
	}
	p.unlockAndClose(c)
}

// unlockAndClose unlocks the pool. It removes and closes c, which may be nil, if c is abandoned and has no user.
func (p *Pool) unlockAndClose(c *conn) {
	_, open := p.conns[c]
	unused := open && c.uses == 0 && !c.pooled
	if unused {
		delete(p.conns, c)
	}
	p.mu.Unlock()
	if unused {
		c.close(ErrClosed)
	}
}

// giveUp makes later calls use a new connection. Present calls continue. The caller holds the lock.
func (p *Pool) giveUp(c *conn) {
	c.pooled = false
	if p.peers[c.addr] == c {
		delete(p.peers, c.addr)
	}
}

// failed reports whether the last attempt to connect has failed. gRPC would fail all calls until its own next
// attempt.
func (c *conn) failed() bool { return c.grpc.GetState() == connectivity.TransientFailure }

// unmade reports whether gRPC is still making the connection. It would retry forever, even without users.
func (c *conn) unmade() bool { return !c.serves.Load() && c.grpc.GetState() == connectivity.Connecting }
