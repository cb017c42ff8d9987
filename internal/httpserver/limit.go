package httpserver

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

// limited is a listener with a bounded number of open connections. At the limit, a new connection replaces the one that
// has been without a handler for the longest time. So a client that keeps connections open, before its request or after
// the reply, keeps no other client out. If every connection has a handler, the new one is closed.
type limited struct {
	net.Listener
	most int

	mu   sync.Mutex
	open int
	idle list.List // of *counted: the connections for which no handler runs, the longest without one first
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.add(nc); c != nil {
			return c, nil
		}
		_ = nc.Close()
	}
}

// add counts nc, or returns nil if there is no place for it.
func (l *limited) add(nc net.Conn) *counted {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == l.most {
		oldest := l.idle.Front()
		if oldest == nil {
			return nil
		}
		l.remove(oldest.Value.(*counted))
	}
	c := &counted{Conn: nc, l: l}
	l.setIdle(c, true)
	l.open++
	return c
}

// remove closes c and stops counting it. mu is held.
func (l *limited) remove(c *counted) {
	if c.closed {
		return
	}
	c.closed = true
	l.open--
	l.setIdle(c, false)
	c.closeErr = c.Conn.Close()
}

// setIdle records whether c may be closed in favor of a new connection. mu is held.
func (l *limited) setIdle(c *counted, idle bool) {
	if c.idle != nil {
		l.idle.Remove(c.idle)
		c.idle = nil
	}
	if idle && !c.closed {
		c.idle = l.idle.PushBack(c)
	}
}

// counted is a connection of a limited listener, whose mutex guards the fields.
type counted struct {
	net.Conn
	l        *limited
	idle     *list.Element // in l.idle; nil while a handler runs, and when it is closed
	closed   bool
	closeErr error
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.remove(c)
	return c.closeErr
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// busy wraps next, so that Accept does not close a request's connection in favor of a new one while next runs.
func busy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*counted); ok {
			c.setIdle(false)
			defer c.setIdle(true)
		}
		next.ServeHTTP(w, r)
	})
}

func (c *counted) setIdle(idle bool) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.setIdle(c, idle)
}
