package simulate

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// cable is an agent's way to the store. It can be pulled and cut.
type cable struct {
	silent atomic.Bool

	mu     sync.Mutex
	pulled bool
	conn   net.Conn // the last one; nil before
}

var errPulled = errors.New("the agent is gone")

// connect makes a connection.
func (c *cable) connect(ctx context.Context, addr string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pulled {
		_ = nc.Close()
		return nil, errPulled
	}
	c.conn = nc
	return &cabled{Conn: nc, cable: c, closed: make(chan struct{})}, nil
}

// pull closes the connection, for good, as the system does it for a process that was killed.
func (c *cable) pull() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pulled = true
	if c.conn != nil {
		_ = c.conn.Close()
	}
}

// cut leaves the connection as it is, and lets nothing through.
func (c *cable) cut() { c.silent.Store(true) }

// cabled is a connection through a cable.
type cabled struct {
	net.Conn
	cable  *cable
	once   sync.Once
	closed chan struct{}
}

func (c *cabled) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.cable.silent.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *cabled) Write(b []byte) (int, error) {
	if c.cable.silent.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Close closes the connection. Of one that is cut the other side does not hear that.
func (c *cabled) Close() error {
	c.once.Do(func() { close(c.closed) })
	if c.cable.silent.Load() {
		return nil
	}
	return c.Conn.Close()
}
