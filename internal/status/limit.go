package status

import (
	"net"
	"sync"
)

// limited is a listener that has so many connections open at most. Further ones are closed at once: a client that holds on to its own keeps
// nobody waiting in line.
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

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	free func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.free()
	return c.Conn.Close()
}
