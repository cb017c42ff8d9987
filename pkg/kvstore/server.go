package kvstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// ServerOptions are the options of a Server.
type ServerOptions struct {
	// Logger gets a line at level warn for the first connection that is closed for each Reason, and one
	// at level debug for every further one. The zero Logger is silent.
	Logger zerolog.Logger

	// MaxConns is the number of connections that are served at a time; further ones are closed as they
	// come. torch 1.13 needs two for each worker, torch 2.x one. Zero means no limit but that of the
	// process's open files.
	MaxConns int

	// StallTimeout is how long a client may be silent within a request before its connection is closed.
	// Silence between requests, or before the first, has no limit. Zero means 30 s.
	StallTimeout time.Duration
}

// Stats is what a Server counts.
type Stats struct {
	Open     int               // connections open now
	Accepted uint64            // connections accepted since the start
	Refused  map[Reason]uint64 // connections closed by the server on its own, by their reason
}

// Server is a TCPStore server for the torch workers of one round. It starts empty and keeps its keys in
// memory. Use NewServer.
type Server struct {
	opts ServerOptions

	storeMu sync.Mutex
	store   *core

	// mu is never taken together with storeMu.
	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	accepted  uint64
	refused   map[Reason]uint64
	stop      chan struct{} // closed when Shutdown or Close begins
	drained   chan struct{} // closed when no connection is left after that
}

// NewServer returns a server with an empty store.
func NewServer(opts ServerOptions) *Server {
	if opts.StallTimeout <= 0 {
		opts.StallTimeout = 30 * time.Second
	}
	return &Server{
		opts:      opts,
		store:     newCore(),
		listeners: map[net.Listener]struct{}{},
		conns:     map[*conn]struct{}{},
		refused:   map[Reason]uint64{},
		stop:      make(chan struct{}),
		drained:   make(chan struct{}),
	}
}

// Serve serves the connections that l accepts. It blocks until l fails or until Shutdown or Close, after
// which it returns ErrClosed. It closes l. A server may serve several listeners.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	s.mu.Lock()
	if s.closing() {
		s.mu.Unlock()
		return ErrClosed
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
	}()

	level := zerolog.WarnLevel // of the first failure in a row
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			s.start(nc)
			level = zerolog.WarnLevel
		case s.closing():
			return ErrClosed
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept store connection on %s: %w", l.Addr(), err)
		default: // a lack of files or memory, a firewall, a network that is down: it passes
			s.opts.Logger.WithLevel(level).Err(err).Msg("accept store connection, try again")
			level = zerolog.DebugLevel
			select {
			case <-s.stop:
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

// start serves nc in a goroutine, unless the server is closing or full. finish ends what it begins.
func (s *Server) start(nc net.Conn) {
	if err := s.admit(nc); err != nil {
		s.tell(nc, err)
		nc.Close()
	}
}

// admit is start for a connection that may be served; its error says why not.
func (s *Server) admit(nc net.Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing() {
		return ErrClosed
	}
	s.accepted++
	if s.opts.MaxConns > 0 && len(s.conns) >= s.opts.MaxConns {
		return refuse(ReasonMaxConns, "%d connections are open", len(s.conns))
	}
	c := newConn(s, nc)
	s.conns[c] = struct{}{}
	go func() { s.finish(c, c.serve()) }()
	return nil
}

// finish takes leave of c, which ended with err.
func (s *Server) finish(c *conn, err error) {
	s.tell(c.nc, err)
	c.nc.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.closing() && len(s.conns) == 0 {
		close(s.drained)
	}
}

// tell counts and logs err, if it is a refusal, before the connection is closed: a client that sees its end
// finds it counted. It logs without mu, so that a log that is slow holds up nobody else.
func (s *Server) tell(nc net.Conn, err error) {
	refusal, ok := errors.AsType[*refusal](err)
	if !ok {
		return
	}
	s.mu.Lock()
	level := zerolog.DebugLevel
	if s.refused[refusal.reason] == 0 {
		level = zerolog.WarnLevel
	}
	s.refused[refusal.reason]++
	s.mu.Unlock()
	s.opts.Logger.WithLevel(level).Stringer("remote", nc.RemoteAddr()).
		Str("reason", string(refusal.reason)).Err(err).Msg("close store connection")
}

// Stats returns the server's counters.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Open: len(s.conns), Accepted: s.accepted, Refused: maps.Clone(s.refused)}
}

// Shutdown closes the listeners and every connection that is between two requests; it lets the others
// finish the request that they are in, which for a wait can take for ever, and closes them then. It
// returns nil when no connection and no goroutine is left, or the cause of ctx when ctx ends before;
// Close is the way to end the rest.
func (s *Server) Shutdown(ctx context.Context) error {
	s.beginStop((*conn).interrupt)
	select {
	case <-s.drained:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("shut down store: %w", context.Cause(ctx))
	}
}

// Close closes the listeners and all connections, and returns when none of the server's goroutines is
// left. Serve, which is its caller's, returns soon after. Its error is always nil.
func (s *Server) Close() error {
	s.beginStop(func(c *conn) { c.nc.Close() })
	<-s.drained
	return nil
}

// beginStop closes the listeners and ends each connection by end. From here on start starts nothing.
func (s *Server) beginStop(end func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing() {
		close(s.stop)
		if len(s.conns) == 0 {
			close(s.drained)
		}
	}
	for l := range s.listeners {
		l.Close()
	}
	for c := range s.conns {
		end(c)
	}
}

// closing tells whether Shutdown or Close has begun.
func (s *Server) closing() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}
