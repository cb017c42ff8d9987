package httpserver

import (
	"net"
	"sync"
)

// limited is a listener with a bounded number of open connections. It closes further ones at once, rather than let them
// wait behind a client that keeps its own open.
type limited struct {
	net.Listener
	slots chan struct{}
}

func limit(l net.Listener, conns int) net.Listener {
	return &limited{Listener: l, slots: make(chan struct{}, conns)}
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return &counted{Conn: c, free: sync.OnceFunc(func() { <-l.slots })}, nil
		default:
			_ = c.Close()
		}
	}
}

// counted is a connection that holds a slot until it is closed.
type counted struct {
	net.Conn
	free func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.free()
	return c.Conn.Close()
}
