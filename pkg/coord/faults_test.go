package coord

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// faultyNetwork is the network between one client and a store.
type faultyNetwork struct {
	connect func(context.Context) (net.Conn, error)

	mu      sync.Mutex
	cut     bool // data is held up
	dead    bool // nobody can connect
	changed chan struct{}
	conns   map[*faultyConn]struct{}
}

func newFaultyNetwork(connect func(context.Context) (net.Conn, error)) *faultyNetwork {
	return &faultyNetwork{connect: connect, changed: make(chan struct{}), conns: map[*faultyConn]struct{}{}}
}

// newFaultyTCP returns the network of a client that connects to addr.
func newFaultyTCP(addr string) *faultyNetwork {
	return newFaultyNetwork(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	})
}

// set changes the network.
func (f *faultyNetwork) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

// reset breaks all connections, those of TCP with a RST.
func (f *faultyNetwork) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		if tcp, ok := c.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		c.Conn.Close()
	}
}

// kill breaks all connections and allows no others.
func (f *faultyNetwork) kill() {
	f.set(func() { f.dead = true })
	f.reset()
}

// waitUncut waits until the network is not cut. It returns false if done is closed first.
func (f *faultyNetwork) waitUncut(done <-chan struct{}) bool {
	for {
		f.mu.Lock()
		cut, changed := f.cut, f.changed
		f.mu.Unlock()
		if !cut {
			return true
		}
		select {
		case <-changed:
		case <-done:
			return false
		}
	}
}

// dial implements DialOptions.Conn.
func (f *faultyNetwork) dial(ctx context.Context) (net.Conn, error) {
	f.mu.Lock()
	dead := f.dead
	f.mu.Unlock()
	if dead {
		return nil, errors.New("the network is dead")
	}
	if !f.waitUncut(ctx.Done()) {
		return nil, ctx.Err()
	}
	nc, err := f.connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &faultyConn{Conn: nc, network: f, late: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns[c] = struct{}{}
	return c, nil
}

// faultyConn is a connection through a faultyNetwork.
type faultyConn struct {
	net.Conn
	network *faultyNetwork
	late    chan struct{} // closed by Close or by a deadline in the past
	once    sync.Once
}

func (c *faultyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.network.waitUncut(c.late) {
		return 0, os.ErrDeadlineExceeded
	}
	return n, err
}

func (c *faultyConn) Write(b []byte) (int, error) {
	if !c.network.waitUncut(c.late) {
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Write(b)
}

func (c *faultyConn) SetDeadline(t time.Time) error {
	if !t.IsZero() && time.Until(t) < 0 {
		c.once.Do(func() { close(c.late) })
	}
	return c.Conn.SetDeadline(t)
}

func (c *faultyConn) Close() error {
	c.once.Do(func() { close(c.late) })
	c.network.mu.Lock()
	delete(c.network.conns, c)
	c.network.mu.Unlock()
	return c.Conn.Close()
}
