package tcpstore

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// ServerOptions are the options of a Server.
type ServerOptions struct {
	// Logger gets a line at level warn for the first connection that is closed for each Reason, and one at level debug
	// for every further one. For ReasonNotAdmitted there is at most one warning per minute. Failures to accept are logged
	// too. The zero Logger is silent. Logger should not block, because all connections wait for it, and must not call the
	// Server.
	Logger zerolog.Logger

	// MaxConns limits the connections that are served at a time. At the limit, a new connection takes the place of the
	// oldest on which the client never sent anything; if there is none, the new one is closed. torch 1.13 needs two
	// connections per worker, torch 2.x one. Zero means that only the process's limit of open files applies.
	MaxConns int

	// MaxMemory is the approximate number of bytes that the server may use. One half is for the store: a request that
	// would store more closes its connection. The other half is for connections: partial requests, waits, and replies
	// that clients are slow to read. If it does not suffice, the connection that uses most is closed. Zero means 2
	// GiB.
	MaxMemory int64

	// StallTimeout is how long a client may take for each 64 KiB of a request, and for the last part of it, before its
	// connection is closed. Silence between requests, or before the first, has no limit. Zero means 30 s.
	StallTimeout time.Duration

	// Accept, if not nil, decides about each connection, before a byte of it is read or written and before Agents
	// receives it. If Accept returns nil, the connection is served. If it returns io.EOF, because the client has ended
	// the connection, the connection is closed and not counted in Stats.Refused. After an error that means that no file
	// can be opened (EMFILE or ENFILE), Accept is called again. Any other error closes the connection for
	// ReasonNotAdmitted. Calls for different connections run concurrently. Accept must not call the Server.
	Accept func(net.Conn) error

	// Agents receives each connection whose first byte is 0x80 or more, which no version of torch sends. It owns the
	// connection, from which it can still read that byte. It must not block and must not call the Server. Such a
	// connection counts as accepted, not as open. If Agents is nil, the server closes these connections for
	// ReasonUnknownOp.
	Agents func(net.Conn)

	// ShedAgents closes up to n of the connections that Agents received and that have not authenticated, the oldest
	// first, and returns how many it closed. The server calls it when the process has few files left. It must not call
	// the Server. Nil closes none.
	ShedAgents func(n int) int
}

// Stats are the counters of a Server.
type Stats struct {
	Open     int               // connections open now
	Accepted uint64            // connections accepted since the start
	Refused  map[Reason]uint64 // connections that the server closed on its own, by reason
	Keys     int               // keys stored, without queues
	Memory   int64             // approximate bytes that count towards MaxMemory
}

// Server is a TCPStore server for torch's clients and for Client. It starts empty and keeps its keys in memory. Use
// [NewServer].
type Server struct {
	opts ServerOptions

	mu        sync.Mutex
	loop      *loop                      // nil before the first Serve
	listeners map[*net.Listener]struct{} // by pointer, because not every Listener is comparable
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

// Serve serves the connections that l accepts, which must be sockets, as those of package net are. A server may serve
// several listeners. Serve closes l when it returns. After Shutdown or Close it returns ErrClosed. If somebody else
// closes l, it returns an error that wraps [net.ErrClosed].
//
// Serve retries after other failures to accept. If the process is short of files, it closes connections on which the
// client never sent anything, and those that ServerOptions.ShedAgents closes. The last eighth of the process's files is
// never given to clients that send requests.
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

	accepting := newAccepting(s, l, loop)
	defer accepting.wait()
	return accepting.run()
}

// begin registers l, and starts the loop with the first listener.
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

// Reset deletes every key and closes every connection on which the client sent something. Clients that connect later
// find an empty store. The server keeps listening, and the connections that Agents received stay. Reset returns when
// that is done. After Shutdown or Close it returns ErrClosed.
func (s *Server) Reset() error {
	s.mu.Lock()
	loop, closing := s.loop, s.closing()
	s.mu.Unlock()
	if loop == nil && !closing {
		return nil // Serve was never called, so there are no clients
	}
	renewed := make(chan struct{})
	if closing || !loop.post(func() { loop.reset(); close(renewed) }) {
		return kvstore.ErrClosed
	}
	<-renewed
	return nil
}

// Shutdown closes the listeners and every connection that is not in the middle of a request. A wait does not count as
// a request. The others are closed when they have finished their request. Shutdown returns nil when no connection is
// left, or the cause of ctx if ctx ends first; Close then ends the rest.
func (s *Server) Shutdown(ctx context.Context) error {
	select {
	case <-s.beginStop(true):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("shut down store: %w", context.Cause(ctx))
	}
}

// Close closes the listeners and all connections, and returns when the goroutine that serves the connections has ended.
// Serve returns soon after, when every call of ServerOptions.Accept has returned. Close always returns nil.
func (s *Server) Close() error {
	<-s.beginStop(false)
	return nil
}

// beginStop closes the listeners and stops the loop. The returned channel is closed when the loop has ended.
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

// closing reports whether Shutdown or Close has begun.
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

// The reasons. None applies if the client ends or breaks its connection.
const (
	// ReasonUnknownOp: an op that is not served.
	ReasonUnknownOp Reason = "unknown op"
	// ReasonMalformed: a request that breaks the protocol or its limits.
	ReasonMalformed Reason = "malformed request"
	// ReasonNotNumber: an ADD to a value that is no number.
	ReasonNotNumber Reason = "add to no number"
	// ReasonStalled: a partial request that does not continue, or too slowly.
	ReasonStalled Reason = "stalled request"
	// ReasonMaxConns: more connections than ServerOptions.MaxConns.
	ReasonMaxConns Reason = "too many connections"
	// ReasonSilent: a connection on which the client never sent anything, and whose place is needed, because there are
	// too many such connections, the process is out of files or ServerOptions.MaxConns is reached.
	ReasonSilent Reason = "silent"
	// ReasonFiles: the process has only the files left that it keeps for agents and for itself.
	ReasonFiles Reason = "out of files"
	// ReasonNotAdmitted: ServerOptions.Accept refused the connection.
	ReasonNotAdmitted Reason = "not admitted"
	// ReasonMemory: more memory than ServerOptions.MaxMemory.
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
