package transport

import (
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/tcplimit"
)

// sockets is a listener that knows which of its connections have not finished gRPC's handshake. gRPC waits for these,
// up to handshakeTimeout, before it ends.
type sockets struct {
	net.Listener
	timeout time.Duration // time within which peers must acknowledge data

	mu      sync.Mutex
	ended   bool
	shaking map[*socket]struct{}
}

func newSockets(ln net.Listener, timeout time.Duration) *sockets {
	return &sockets{Listener: ln, timeout: timeout, shaking: map[*socket]struct{}{}}
}

// Accept implements [net.Listener]. After the end it accepts no connection, and returns when the listener is closed.
func (s *sockets) Accept() (net.Conn, error) {
	for {
		c, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		s.limit(c)
		if accepted := (&socket{Conn: c, of: s}); s.add(accepted) {
			return accepted, nil
		}
		c.Close()
	}
}

// limit sets socket options that gRPC sets only on a bare socket. It fails only if the connection is gone, which the
// handshake finds out.
func (s *sockets) limit(c net.Conn) {
	bare, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := bare.SyscallConn(); err == nil {
		_ = tcplimit.Control(s.timeout)("", "", raw)
	}
}

func (s *sockets) add(c *socket) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.shaking[c] = struct{}{}
	}
	return !s.ended
}

func (s *sockets) remove(c *socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.shaking, c)
}

// end closes the connections whose handshake is not finished, and all connections that are accepted later.
func (s *sockets) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for c := range s.shaking {
		c.Conn.Close()
	}
	clear(s.shaking)
}

// socket is an accepted connection.
type socket struct {
	net.Conn
	of *sockets
}

// SetDeadline implements [net.Conn]. gRPC sets a deadline for the handshake and removes it when the handshake has
// ended.
func (c *socket) SetDeadline(t time.Time) error {
	if t.IsZero() {
		c.of.remove(c)
	}
	return c.Conn.SetDeadline(t)
}

// Close implements [net.Conn].
func (c *socket) Close() error {
	c.of.remove(c)
	return c.Conn.Close()
}
