package tcpstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// ClientOptions are the options of a Client.
type ClientOptions struct {
	// Protocol is the version that the server speaks. Zero means ProtocolV2. A [Server] speaks both. A client cannot
	// detect the version of torch's server, so a wrong one makes Dial retry until its context ends: a torch 1.x server
	// reads the handshake of version 2 as a key whose end never comes.
	Protocol Protocol

	// Workers is the number of workers that join the store, as with wait_for_workers of torch's TCPStore. Dial then
	// adds 1 to the key "init/", which NumKeys also counts. Zero means that the client does not join.
	Workers int

	// Host makes Dial wait until "init/" has reached Workers, as torch's rank 0 does, which hosts the server. Dial
	// polls every 10 ms, because the protocol can wait for a key but not for a number. Host has no effect without
	// Workers.
	Host bool

	// unconfirmed makes the client send byte for byte what torch's own client sends: nothing confirms a Set, Append,
	// MultiSet or QueuePush. These return when they are written, and their errors are lost, except that the next call
	// after a broken connection fails with ErrConnection. To keep the order of calls, the client then has a single
	// connection, as torch's has: a Wait or Get that blocks delays every other call.
	unconfirmed bool
}

// Client is a [kvstore.Store] on a TCPStore server: a [Server] or torch's. It puts a "/" before every key, as torch's
// TCPStore does. A call that blocks does not delay other calls. Use [Dial].
//
// # Connections
//
// A connection carries one call at a time. A call takes the idle connection that was used last, or dials another, once
// and bounded by its context. The client keeps up to 64 idle connections.
//
// Because two calls may use two connections, the client confirms requests that have no reply: it sends a PING with
// them (torch 1.x: a CHECK of no keys), and the call returns when that is answered. So a call sees the effect of every
// call that returned before it.
//
// # Failures
//
// The client never sends a request twice. A call whose connection breaks fails with ErrConnection, and it is unknown
// whether the server carried it out. The next call dials again. The client notices an idle connection that the server
// has closed before it uses it, unless the server closes it at that very moment.
//
// A torch server closes the connection on an Add to a value that is no number, and on a key or value over its limit.
// The client rejects the latter with ErrProtocol before it sends anything.
//
// # Contexts
//
// A call ends soon after its context. Its error names its keys; it is ErrTimeout after a deadline and the context's
// cause otherwise. A call whose context has already ended sends nothing.
//
// If the context ends during a wait, the client cancels the wait on the wire and gives the server a second to confirm.
// If the cancellation crosses the release of the wait, Wait and ServerBarrier succeed; calls with further requests
// fail. Any other call whose context ends, and every such call to torch 1.x, closes its connection, and the server may
// still carry it out.
//
// # Differences from other stores
//
// If another client deletes a key in the middle of a Get or MultiGet, the value is empty. torch's server without libuv
// closes the connection instead.
//
// The errors of Wait and MultiGet name the keys that were still missing: the client asks for them after it canceled
// the wait. With torch 1.x, and for more than 1024 keys, they name all keys.
//
// torch 1.x has no Append, queues, ListKeys or ServerBarrier; they return ErrProtocol. Its MultiGet and MultiSet
// consist of single requests, between which requests of other clients may come.
type Client struct {
	addr string
	opts ClientOptions
	open func(context.Context) (net.Conn, error) // makes a connection

	slot    chan struct{} // with unconfirmed: room for one token, which the call in progress holds
	closing chan struct{} // closed when Close begins

	mu    sync.Mutex
	idle  []*clientConn          // most recently used last
	conns map[*clientConn]func() // every connection, made or being made, and the function that ends it
	local netip.AddrPort         // this end of the latest connection
}

var _ kvstore.Store = (*Client)(nil)

func newClient(addr string, opts ClientOptions) *Client {
	if opts.Protocol == protocolUnknown {
		opts.Protocol = ProtocolV2
	}
	c := &Client{addr: addr, opts: opts, closing: make(chan struct{}), conns: map[*clientConn]func(){}}
	if opts.unconfirmed {
		c.slot = make(chan struct{}, 1)
	}
	c.open = func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}
	return c
}

// Addr returns the address that Dial was given.
func (c *Client) Addr() string { return c.addr }

// LocalAddr returns the local address of the client's latest connection. Hosts that reach the same server can probably
// reach this host there. It is the zero value before the first connection, and without TCP.
func (c *Client) LocalAddr() netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.local
}

// Close closes the connections. Calls in progress, and later ones, return ErrClosed. What the client stored stays in
// the store. Close always returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed() {
		return nil
	}
	close(c.closing)
	for _, end := range c.conns {
		end()
	}
	clear(c.conns)
	c.idle = nil
	return nil
}

func (c *Client) closed() bool {
	select {
	case <-c.closing:
		return true
	default:
		return false
	}
}

// call sends one or more queries on one connection. Its error names the query that failed.
func (c *Client) call(ctx context.Context, queries ...query) (answer, error) {
	a, failed, err := c.try(ctx, queries)
	if err != nil {
		return answer{}, fmt.Errorf("%s at store %s: %w", queries[failed].String(), c.addr, err)
	}
	return a, nil
}

func (c *Client) try(ctx context.Context, queries []query) (a answer, failed int, err error) {
	for i := range queries {
		if err := queries[i].check(c.opts.Protocol); err != nil {
			return a, i, err
		}
	}
	if ctx.Err() != nil {
		return a, 0, kvstore.ContextError(ctx)
	}
	if ops[queries[len(queries)-1].op].silent && !c.opts.unconfirmed {
		queries = append(queries, c.confirmation())
	}
	l, err := c.acquire(ctx)
	if err != nil {
		return a, 0, err
	}
	a, failed, err = l.call(ctx, queries)
	c.putBack(l)
	return a, failed, c.classify(ctx, err)
}

// confirmation returns a query without effect. Its reply shows that the server has carried out all requests before it.
func (c *Client) confirmation() query {
	if c.opts.Protocol == ProtocolV1 {
		return query{op: opCheck}
	}
	return query{op: opPing, number: int64(uint32(os.Getpid()))} // the nonce that torch sends
}

// classify wraps an error of a connection in the package's error that fits.
func (c *Client) classify(ctx context.Context, err error) error {
	switch {
	case err == nil || errors.Is(err, kvstore.ErrProtocol):
		return err
	case c.closed():
		return kvstore.ErrClosed
	case ctx.Err() != nil:
		return kvstore.ContextError(ctx)
	}
	return fmt.Errorf("%w: %w", kvstore.ErrConnection, err)
}

// checkAddr returns an error if addr cannot be dialed.
func checkAddr(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if n, err := strconv.ParseUint(port, 10, 16); host == "" || err != nil || n == 0 {
		return fmt.Errorf("address %q: want HOST:PORT with a port of 1 to 65535", addr)
	}
	return nil
}
