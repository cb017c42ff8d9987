package simulate

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// faultLink is the connections that an agent opens, to the store and to others that keep it, with faults to inject.
type faultLink struct {
	silent atomic.Bool

	mu           sync.Mutex
	disconnected bool
	conns        map[net.Conn]bool // open ones
}

func newFaultLink() *faultLink { return &faultLink{conns: map[net.Conn]bool{}} }

var errDisconnected = errors.New("the agent was killed")

// connect dials addr. It implements elastic.C10d.Connect.
func (c *faultLink) connect(ctx context.Context, addr string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.disconnected {
		_ = nc.Close()
		return nil, errDisconnected
	}
	c.conns[nc] = true
	return &faultConn{Conn: nc, link: c, closed: make(chan struct{})}, nil
}

// disconnect closes the connections and refuses further ones, as after the agent's process was killed.
func (c *faultLink) disconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disconnected = true
	for nc := range c.conns {
		_ = nc.Close()
	}
}

// blackhole keeps the connections open and drops all data in both directions.
func (c *faultLink) blackhole() { c.silent.Store(true) }

// faultConn is a connection of a faultLink.
type faultConn struct {
	net.Conn
	link   *faultLink
	once   sync.Once
	closed chan struct{}
}

func (c *faultConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.link.silent.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *faultConn) Write(b []byte) (int, error) {
	if c.link.silent.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Close closes the connection. After blackhole the other side does not see it.
func (c *faultConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.link.mu.Lock()
	delete(c.link.conns, c.Conn)
	c.link.mu.Unlock()
	if c.link.silent.Load() {
		return nil
	}
	return c.Conn.Close()
}
