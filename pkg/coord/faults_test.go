package coord

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// faultyNetwork is what lies between one client and a store at an address.
type faultyNetwork struct {
	addr string

	mu      sync.Mutex
	cut     bool // what is sent is held up
	dead    bool // nobody can connect
	changed chan struct{}
	conns   map[*faultyConn]struct{}
	dials   int
}

func newFaultyNetwork(addr string) *faultyNetwork {
	return &faultyNetwork{addr: addr, changed: make(chan struct{}), conns: map[*faultyConn]struct{}{}}
}

// set changes the network.
func (f *faultyNetwork) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

// reset breaks all connections, as a RST would.
func (f *faultyNetwork) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		_ = c.Conn.(*net.TCPConn).SetLinger(0)
		c.Conn.Close()
	}
}

// kill breaks all connections, and lets no other come.
func (f *faultyNetwork) kill() {
	f.set(func() { f.dead = true })
	f.reset()
}

// pass waits until the network is not cut.
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

// dial is a DialOptions.Conn.
func (f *faultyNetwork) dial(ctx context.Context) (net.Conn, error) {
	f.mu.Lock()
	dead := f.dead
	f.dials++
	f.mu.Unlock()
	if dead {
		return nil, errors.New("the network is dead")
	}
	if !f.waitUncut(ctx.Done()) {
		return nil, ctx.Err()
	}
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", f.addr)
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
	late    chan struct{} // closed when a deadline in the past was set, or the connection closed
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
