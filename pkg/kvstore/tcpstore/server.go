package tcpstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// ServerOptions are the options of a Server.
type ServerOptions struct {
	// Logger gets a line at level warn for the first connection that is closed for each Reason, and one
	// at level debug for every further one. The zero Logger is silent. It should not block, since the
	// connections wait for it, and must not call the Server.
	Logger zerolog.Logger

	// MaxConns is the number of connections that are served at a time; for a further one the oldest on which nothing was said is
	// closed, or itself where there is none. torch 1.13 needs two for each worker, torch 2.x one. Zero means no limit but that of the
	// process's open files.
	MaxConns int

	// MaxMemory is about the number of bytes that the server may take. One half of it is for what is stored: a
	// request that would store more closes its connection. The other half is for what connections take: half
	// requests, waits, and answers that their clients are slow to take. Where that does not suffice, the
	// connection that takes most is closed. Zero means 2 GiB.
	MaxMemory int64

	// StallTimeout is how long a client may take for each 64 KiB of a request, and for the last of them;
	// then its connection is closed. Silence between requests, or before the first, has no limit. Zero
	// means 30 s.
	StallTimeout time.Duration

	// Agents is given each connection whose first byte is 0x80 or more, which no torch sends, that byte
	// still to be read, and owns it from then on. It must not block, nor call the Server. Such a connection counts as accepted, not as
	// open. Nil means that they are closed for ReasonUnknownOp.
	Agents func(net.Conn)

	// ShedAgents closes up to n of the connections that Agents was given and that have proved nothing yet, the oldest first, and
	// returns how many. It is called when no more files can be opened, and must not call the Server. Nil closes none.
	ShedAgents func(n int) int
}

// Stats is what a Server counts.
type Stats struct {
	Open     int               // connections open now
	Accepted uint64            // connections accepted since the start
	Refused  map[Reason]uint64 // connections closed by the server on its own, by their reason
	Keys     int               // keys stored, queues not counted
	Memory   int64             // about how many bytes count towards MaxMemory
}

// Server is a TCPStore server for torch's clients and for Client. It starts empty and keeps its keys in
// memory. Use NewServer.
type Server struct {
	opts ServerOptions

	mu        sync.Mutex
	loop      *loop                      // nil before the first Serve
	listeners map[*net.Listener]struct{} // by pointer: not every Listener can be compared
	stop      chan struct{}              // closed when Shutdown or Close begins
}

// NewServer returns a server with an empty store.
func NewServer(opts ServerOptions) *Server {
	if opts.StallTimeout <= 0 {
		opts.StallTimeout = 30 * time.Second
	}
	if opts.MaxMemory <= 0 {
		opts.MaxMemory = 2 << 30
	}
	return &Server{opts: opts, listeners: map[*net.Listener]struct{}{}, stop: make(chan struct{})}
}

// Serve serves the connections that l accepts. It blocks until Shutdown or Close, after which it returns ErrClosed, or
// until somebody else closes l; other failures to accept pass, and it tries again, where files have run short at once, having closed
// connections on which nothing was said. It closes l. A server may serve several listeners. The connections must be
// sockets, as those of package net are.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	loop, err := s.begin(&l)
	if err != nil {
		return err
	}
	defer func() {
		s.mu.Lock()
		delete(s.listeners, &l)
		s.mu.Unlock()
	}()

	level := zerolog.WarnLevel // of the first failure in a row
	var nc net.Conn            // accepted, but not served yet
	defer func() {
		if nc != nil {
			nc.Close()
		}
	}()
	for {
		if nc == nil {
			nc, err = l.Accept()
		}
		if err == nil {
			if err = loop.adopt(nc); err == nil {
				nc, level = nil, zerolog.WarnLevel
				continue
			}
		}
		switch {
		case s.closing():
			return kvstore.ErrClosed
		case errors.Is(err, net.ErrClosed), errors.Is(err, errNoSocket):
			return fmt.Errorf("accept store connection on %s: %w", l.Addr(), err)
		case fileLimitReached(err) && s.freeFiles(loop):
			err = nil
		default: // a lack of files or memory, a firewall, a network that is down: it passes
			s.opts.Logger.WithLevel(level).Err(err).Msg("accept store connection, try again")
			level = zerolog.DebugLevel
			err = nil
			select {
			case <-s.stop:
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

// begin takes note of l, and starts the loop with the first listener.
func (s *Server) begin(l *net.Listener) (*loop, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing() {
		return nil, kvstore.ErrClosed
	}
	if s.loop == nil {
		loop, err := newLoop(s.opts)
		if err != nil {
			return nil, err
		}
		s.loop = loop
		go loop.run()
	}
	s.listeners[l] = struct{}{}
	return s.loop, nil
}

// Stats returns the server's counters.
func (s *Server) Stats() (stats Stats) {
	s.mu.Lock()
	loop := s.loop
	s.mu.Unlock()
	if loop == nil {
		return Stats{}
	}
	loop.call(func() { stats = loop.stats() })
	return stats
}

// Renew forgets every key and closes every connection on which something was said: who connects from then on finds an empty store. It
// listens on, and what Agents was given stays. It returns when that is done; after Shutdown or Close it is ErrClosed.
func (s *Server) Reset() error {
	s.mu.Lock()
	loop, closing := s.loop, s.closing()
	s.mu.Unlock()
	if loop == nil && !closing {
		return nil // nobody has connected yet
	}
	renewed := make(chan struct{})
	if closing || !loop.post(func() { loop.reset(); close(renewed) }) {
		return kvstore.ErrClosed
	}
	<-renewed
	return nil
}

// Shutdown closes the listeners and every connection that is not in the midst of a request; a wait is ended
// for that. It lets the others finish their request, and closes them then. It returns nil when no connection
// and no goroutine is left, or the cause of ctx when ctx ends before; Close is the way to end the rest.
func (s *Server) Shutdown(ctx context.Context) error {
	select {
	case <-s.beginStop(true):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("shut down store: %w", context.Cause(ctx))
	}
}

// Close closes the listeners and all connections, and returns when none of the server's goroutines is
// left. Serve, which is its caller's, returns soon after. Its error is always nil.
func (s *Server) Close() error {
	<-s.beginStop(false)
	return nil
}

// beginStop closes the listeners and stops the loop. The channel it returns is closed when that has ended.
func (s *Server) beginStop(graceful bool) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing() {
		close(s.stop)
	}
	for l := range s.listeners {
		(*l).Close()
	}
	if s.loop == nil {
		none := make(chan struct{})
		close(none)
		return none
	}
	s.loop.post(func() { s.loop.stop(graceful) })
	return s.loop.done
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

// Reason is why a Server closed a connection on its own.
type Reason string

// The reasons. A client that ends or breaks its connection is none of them.
const (
	// ReasonUnknownOp is an op that is not served.
	ReasonUnknownOp Reason = "unknown op"
	// ReasonMalformed is a request that breaks the protocol or its bounds.
	ReasonMalformed Reason = "malformed request"
	// ReasonNotNumber is an ADD to a value that is no number.
	ReasonNotNumber Reason = "add to no number"
	// ReasonStalled is half a request that does not go on, or too slowly.
	ReasonStalled Reason = "stalled request"
	// ReasonMaxConns is one connection more than ServerOptions.MaxConns.
	ReasonMaxConns Reason = "too many connections"
	// ReasonSilent is a connection on which nothing was ever said, and whose place is needed: files run short, or
	// ServerOptions.MaxConns is reached.
	ReasonSilent Reason = "silent"
	// ReasonMemory is more than ServerOptions.MaxMemory.
	ReasonMemory Reason = "out of memory"
)

// refusal is the error that closes a connection for a Reason.
type refusal struct {
	reason Reason
	err    error
}

func refuse(reason Reason, format string, args ...any) error {
	return &refusal{reason: reason, err: fmt.Errorf(format, args...)}
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }
