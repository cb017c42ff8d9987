package simulate

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// faultLink is the connection between an agent and the store, with faults to inject.
type faultLink struct {
	silent atomic.Bool

	mu           sync.Mutex
	disconnected bool
	conn         net.Conn // the last one; nil before
}

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
	c.conn = nc
	return &faultConn{Conn: nc, link: c, closed: make(chan struct{})}, nil
}

// disconnect closes the connection and refuses further ones, as after the agent's process was killed.
func (c *faultLink) disconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disconnected = true
	if c.conn != nil {
		_ = c.conn.Close()
	}
}

// blackhole keeps the connection open and drops all data in both directions.
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
	if c.link.silent.Load() {
		return nil
	}
	return c.Conn.Close()
}
