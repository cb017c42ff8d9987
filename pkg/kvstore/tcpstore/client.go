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
	// Generation is the protocol that the server speaks. Zero means TodaysGeneration. The two cannot be told apart
	// from the server's side of a connection, so a wrong one makes Dial try until its context ends; a server of
	// torch 1.x takes today's greeting for the beginning of an endless key.
	Protocol Protocol

	// Workers, if not zero, is the number of workers that join the store, as with wait_for_workers of torch's
	// TCPStore: Dial then adds 1 to the key "init/", which NumKeys counts too. Zero means that the client does not
	// count itself.
	Workers int

	// Host makes Dial return only when "init/" has reached Workers, as torch's rank 0 does, which hosts the
	// server. Dial looks every 10 ms, because the protocol can wait for a key but not for a number. Without
	// Workers it means nothing.
	Host bool

	// unconfirmed makes the client send byte for byte what torch's own client sends: nothing confirms a Set,
	// Append, MultiSet or QueuePush. They return when they are written and their errors are lost, except that the
	// next call after one whose connection broke fails with ErrConnection. To keep the order of calls the client
	// then has one connection only, as torch's has: a Wait or Get that blocks holds up every other call until it
	// ends.
	unconfirmed bool
}

// Client is a Store on a TCPStore server: a Server or torch's own. Keys get a "/" in front on their way, as those
// of torch's TCPStore do. Any number of goroutines may use a Client at the same time; a call that blocks holds up
// no other. Use Dial.
//
// # Connections
//
// A connection carries one call at a time. A call takes the idle one that was used last or dials another, in one
// attempt that its context bounds; 64 idle ones at most are kept. Because two calls may use two connections, the
// requests that have no answer are confirmed: a PING travels with them (torch 1.x: a CHECK of no keys), and the
// call returns when that is answered. So a call sees what every call that returned before it did.
//
// # Failures
//
// Nothing is ever sent twice. A call whose connection breaks fails with ErrConnection, and whether the server has
// carried it out is not known; the next call dials again. An idle connection that the server has closed is noticed
// before it is used, unless the server does so in that very moment. A torch server closes the connection on an Add
// to what is no number, and on a key or value over its bounds; the latter are refused here, with ErrProtocol,
// before anything is sent.
//
// # Contexts
//
// A call ends soon after its context, with an error that names its keys and is ErrTimeout after a deadline and
// otherwise the context's cause. A context that has ended already sends nothing. A wait that ends early is
// cancelled on the wire, for which a server has a second; if the release of the wait crossed that, Wait and
// ServerBarrier succeed even so, and calls that had more to ask do not. Any other call that ends early, and every
// one of torch 1.x, closes its connection, and the server may yet carry it out.
//
// # Differences from other stores
//
// A key that another client deletes in the middle of a Get or MultiGet has an empty value, or, where the server is
// torch's without libuv, breaks the connection. The errors of Wait and MultiGet name the keys that were still
// missing, which the client asks for when it has cancelled the wait; with torch 1.x, with unconfirmed and for more
// than 1024 keys they name all. torch 1.x has no Append, no queues, no ListKeys and no ServerBarrier, which are an
// ErrProtocol there; its MultiGet and MultiSet are made of single requests, between which other clients' requests
// may come.
type Client struct {
	addr string
	opts ClientOptions
	open func(context.Context) (net.Conn, error) // makes a connection

	slot    chan struct{} // with unconfirmed: holds a token for each call under way, and has room for one
	closing chan struct{} // closed when Close begins

	mu    sync.Mutex
	idle  []*clientConn          // last used last
	conns map[*clientConn]func() // every connection made or in the making, and what ends it
	local netip.AddrPort         // this end of the latest one that was made
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

// LocalAddr returns the address of this host from which the client made its latest connection: one by which those that
// reach the same server may reach this host. It is the zero value before there was one, and without TCP.
func (c *Client) LocalAddr() netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.local
}

// Close closes the connections. Calls under way, and later ones, return ErrClosed. What the client has stored
// stays in the store. Its error is always nil.
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

// call makes queries, at least one, on one connection. Its error says which of them failed.
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
	if !queries[len(queries)-1].op.answered() && !c.opts.unconfirmed {
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

// confirmation is a query without effect. Its answer shows that the server has carried out all before it.
func (c *Client) confirmation() query {
	if c.opts.Protocol == ProtocolV1 {
		return query{op: opCheck}
	}
	return query{op: opPing, number: int64(uint32(os.Getpid()))} // torch's nonce, too
}

// classify gives an error of a connection its place in the family.
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

// checkAddr tells whether addr can be dialed at all.
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
