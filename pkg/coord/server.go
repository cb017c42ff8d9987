package coord

import (
	"cmp"
	"container/list"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/coord/certfiles"
)

// ServerOptions are the options of a Server.
type ServerOptions struct {
	// Logger receives one line for each lost session. It also receives one line for the first refused client of each
	// address and Reason but ReasonElsewhere, and the number of further refusals once a minute. The zero Logger is
	// silent. The logger's writer must not call the Server.
	Logger zerolog.Logger
	// Version is elasticrun's version, which clients must have too. Empty accepts any.
	Version string
	// RunID is the only run that the store serves. Empty serves any run.
	RunID string
	// Secret, if not empty, is the shared secret that clients must know. It is never sent. Anybody who connects can test
	// guesses against the store's proof, so the secret must be hard to guess.
	Secret []byte
	// Certificates are the site's certificates. Nil means that the store makes its own certificate and requires none.
	Certificates *certfiles.Set
	// OnJoin, if not nil, is called with the run id of each client that begins or resumes a session, before the
	// client's first request is served. It may block that client.
	OnJoin func(runID string)
	// Admit, if not nil, decides whether a client of the run may begin a session now. It returns "" to admit the
	// client, and the reason as one line of text otherwise. Clients that resume a session are always admitted. Admit
	// must not block or call the Server.
	Admit func(runID string) (refusal string)
	// Elsewhere, if not nil, is called for each client that has proved that it belongs to the store. If elsewhere is
	// true, the client is refused, because another member of the store's group serves now: the one at addr, HOST:PORT,
	// or an unknown one if addr is empty. Elsewhere may make the client wait up to half a second, for example until the
	// group has chosen who serves. Close waits for it.
	Elsewhere func() (addr string, elsewhere bool)
	// OnMember, if not nil, gets the connection of each other member of the store's group, see [DialMember], and owns it.
	// It must not block. Nil refuses members.
	OnMember func(net.Conn)
	// Authority limits what clients may write and watch. Nil allows everything.
	Authority Authority
	// InstanceID distinguishes this store from any other store at the same address. Empty chooses a random id.
	InstanceID string
	// SessionTTL is the TTL of clients that ask for none. 0 means 15 s.
	SessionTTL time.Duration
	// MaxMemory is approximately how many bytes the store may use: one half for keys, sessions and watches, the other
	// half for requests and answers in flight. What exceeds the first half fails with ErrFull, and new clients get no
	// session. When the second half is full, the server closes the connection that uses most of it. 0 means 1 GiB.
	MaxMemory int64
	// HandshakeTimeout is how long a client may take to begin the TLS handshake, and then to get a session. The time in
	// between, in which the server is busy with the handshakes of others, does not count. 0 means 5 s.
	HandshakeTimeout time.Duration
	// StallTimeout is how long a client may take to read or send each 64 KiB; then its connection is closed.
	// 0 means 10 s.
	StallTimeout time.Duration
}

// ErrServerClosed is returned by methods of a closed Server.
var ErrServerClosed = errors.New("coordination store: server closed")

// Server is a coordination store. Use NewServer or OpenServer.
type Server struct {
	opts  ServerOptions
	start time.Time // the origin of the core clock

	received, sent meter
	tlsConfig      func() (*tls.Config, error) // for one connection
	turns          chan struct{}               // holds one value for each handshake that computes
	maxPending     int                         // the maximum length of pending

	// mu guards all fields below, and those fields of conns and of local stores that are marked so. It is the server's
	// only lock. Nobody waits for a network, a disk or a caller while holding it.
	mu           sync.Mutex
	core         *core
	writer       *journalWriter // nil for a store in memory
	conns        map[*conn]struct{}
	sessionConns map[*session]*conn // the connection of each session that has one
	locals       map[*local]struct{}
	remote       int // the number of sessions that are not local
	reached      map[netip.Addr]int
	stats        Stats
	ticking      bool          // tick is running
	nextTick     time.Duration // the time of tick's next check
	drain        chan struct{} // nil until Shutdown begins; closed when no remote session is left
	closed       bool
	stop         chan struct{} // closed when closed is set
	failure      error         // why the store has ended by itself
	exitNotice   []byte        // set by End; nil before
	fresh        bool          // see Fresh
	refusals     refusals
	pending      list.List      // of *conn: the connections without a session, oldest first
	inflight     int64          // the bytes that all connections use
	closeWriter  sync.Once      // closes the writer
	running      sync.WaitGroup // the goroutines of connections, tick and logRefusalSummaries
}

// NewServer returns an empty store that keeps its keys in memory.
func NewServer(opts ServerOptions) *Server {
	if opts.InstanceID == "" {
		opts.InstanceID = rand.Text()
	}
	opts.SessionTTL = cmp.Or(max(opts.SessionTTL, 0), 15*time.Second)
	opts.HandshakeTimeout = cmp.Or(max(opts.HandshakeTimeout, 0), 5*time.Second)
	opts.StallTimeout = cmp.Or(max(opts.StallTimeout, 0), 10*time.Second)
	opts.MaxMemory = cmp.Or(max(opts.MaxMemory, 0), defaultMax)
	tlsConfig := sync.OnceValues(serverConfig)
	if opts.Certificates != nil {
		tlsConfig = siteServerConfig(opts.Certificates)
	}
	core := newCore()
	core.budget.limitMemory(opts.MaxMemory)
	return &Server{
		opts: opts, fresh: true, start: time.Now(), core: core, stop: make(chan struct{}),
		conns: map[*conn]struct{}{}, sessionConns: map[*session]*conn{}, locals: map[*local]struct{}{},
		reached: map[netip.Addr]int{}, tlsConfig: tlsConfig,
		turns: make(chan struct{}, runtime.GOMAXPROCS(0)), maxPending: opts.pendingLimit(),
	}
}

// Fresh reports whether the store began without the sessions of an earlier process: it is in memory, or its folder was
// new.
func (s *Server) Fresh() bool { return s.fresh }

// InstanceID returns the id that distinguishes this store from any other.
func (s *Server) InstanceID() string { return s.opts.InstanceID }

// ServeConn serves a new connection of an agent and owns it from then on. It does not block; Close waits for the
// goroutines that it starts. After Close it only closes nc.
func (s *Server) ServeConn(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		nc.Close()
		return
	}
	c := newConn(s, nc)
	s.conns[c] = struct{}{}
	s.addPending(c)
	s.stats.Accepted++
	s.running.Go(c.run)
}

// Sessions returns the number of sessions that are not local.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remote
}

// HasSession reports whether a client of the run has a session. A session that was loaded from the disk counts only
// after its client has resumed it. If HasSession returns false, ServerOptions.OnJoin will be called as soon as a client
// of the run has a session.
func (s *Server) HasSession(runID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, session := range s.core.sessions {
		if session.runID == runID && session.role == RoleAgent {
			return true
		}
	}
	return false
}

// ReachedAt returns the addresses of this host at which clients have got a session, the most frequent one first.
// Clients without a run id do not count: they may be anybody, for example a probe.
func (s *Server) ReachedAt() []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.reached), func(a, b netip.Addr) int {
		return cmp.Or(cmp.Compare(s.reached[b], s.reached[a]), a.Compare(b))
	})
}

// Shutdown accepts no new sessions, waits until no client has a session, and then closes the store as Close does. If
// ctx ends first, Shutdown returns its cause and the store continues to serve the remaining clients until Close.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if s.drain == nil {
		s.drain = make(chan struct{})
		if s.remote == 0 {
			close(s.drain)
		}
	}
	drain := s.drain
	s.mu.Unlock()
	select {
	case <-drain:
		return s.Close()
	case <-s.stop:
		return s.Close()
	case <-ctx.Done():
		return fmt.Errorf("shut down the coordination store with %d clients left: %w", s.Sessions(), context.Cause(ctx))
	}
}

// Close ends the store. Clients of a store in memory lose their sessions with ErrUnavailable; clients of a store on a
// disk wait for its return. Close returns when all goroutines of the server have ended. Its error is the disk's.
func (s *Server) Close() error { return s.CloseWith("its host has closed it") }

// CloseWith is Close with a reason, a clause for people that the clients' ErrUnavailable ends with.
func (s *Server) CloseWith(reason string) error {
	s.mu.Lock()
	var last []byte
	if s.writer == nil {
		last = appendExitNotice(nil, codeUnavailable, reason)
	}
	s.end(last, errServerEnded)
	s.mu.Unlock()
	s.running.Wait()
	var err error
	s.closeWriter.Do(func() {
		if s.writer != nil {
			err = s.writer.close()
		}
	})
	return err
}

// errServerEnded is the error of sessions in this process after the store was closed.
var errServerEnded = fmt.Errorf("%w: it was closed", ErrUnavailable)

// End ends the store for good, even a store that others could continue: clients lose their sessions with ErrUnavailable
// and the reason, a clause for people. The caller must still call Close.
func (s *Server) End(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.exitNotice = appendExitNotice(nil, codeUnavailable, reason)
		s.end(s.exitNotice, errServerEnded)
	}
}

// end begins to end the store: it sends a last frame to clients and ends local stores with err. s.mu is held.
func (s *Server) end(last []byte, err error) {
	if s.closed {
		return
	}
	s.closed = true
	close(s.stop)
	for c := range s.conns {
		if c.session == nil && !c.closing { // in the handshake
			c.nc.Close()
			continue
		}
		c.closeWith(last)
	}
	for l := range s.locals {
		l.lose(err)
	}
}

// tickInterval is the longest time between two checks of tick, so that tick notices a pause of the process.
const tickInterval = 100 * time.Millisecond

// clock returns the time for the core. If tick is overdue, the process did not run, for example because it was stopped.
// The store could not receive keep-alives during that pause, so the pause does not count towards any TTL. s.mu is held.
func (s *Server) clock() time.Duration {
	now := time.Since(s.start)
	if late := now - s.nextTick; s.ticking && late > tickInterval {
		s.core.addPause(late)
		s.nextTick = now
		if late > time.Second {
			s.opts.Logger.Warn().Str("pause", seconds.Format(late)).
				Msg("the job's store was paused; its sessions are extended by the pause")
		}
	}
	return now
}

// tick ends expired sessions and keys until no timer is left.
func (s *Server) tick() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.stop:
			return
		}
		s.mu.Lock()
		now := s.clock()
		for _, ended := range s.core.expire(now) {
			line := s.opts.Logger.Warn()
			if ended.runID == "" { // its session comes from an earlier leader of the group; the agents report the loss
				line = s.opts.Logger.Debug()
			}
			line = line.Str("run", ended.runID).Str("session", string(ended.id))
			if ended.from.IsValid() { // a client at a Unix socket has no address
				line = line.Stringer("from", ended.from)
			}
			line.Msgf("no keep-alive arrived for %s: the node counts as lost", seconds.Format(ended.ttl))
			s.sessionEnded(ended, "no keep-alive arrived in time")
		}
		next, ok := s.core.nextExpiry()
		if !ok {
			s.ticking = false
			s.mu.Unlock()
			return
		}
		wait := max(0, min(next-now, tickInterval))
		s.nextTick = now + wait
		s.mu.Unlock()
		timer.Reset(wait)
	}
}

// startTicker starts tick if a timer exists. It must be called after every addition of a session or a TTL. s.mu is
// held.
func (s *Server) startTicker() {
	if _, ok := s.core.nextExpiry(); !ok || s.ticking || s.closed {
		return
	}
	s.ticking, s.nextTick = true, time.Since(s.start)
	s.running.Go(s.tick)
}

// sessionEnded handles the end of a client's session. It sends the reason to the session's connection, if there is one.
// s.mu is held.
func (s *Server) sessionEnded(session *session, reason string) {
	if c := s.sessionConns[session]; c != nil {
		delete(s.sessionConns, session)
		c.session = nil
		c.closeWith(appendExitNotice(nil, codeLost, reason))
	}
	if s.remote--; s.remote == 0 && s.drain != nil {
		close(s.drain)
	}
}

// Ended returns a channel that is closed when the store begins to end, because of Close, Shutdown or the error that Err
// returns.
func (s *Server) Ended() <-chan struct{} { return s.stop }

// Err returns the error that ended the store, for example a failed write to its disk. It returns nil while the store
// runs and after a Close that came first.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// Fail ends the store because of err: local sessions are lost with err, and clients try to reconnect. The caller must
// still call Close. Fail does nothing if the store has already ended.
func (s *Server) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(err)
}

// fail implements Fail. s.mu is held.
func (s *Server) fail(err error) {
	if s.closed {
		return
	}
	s.failure = err
	s.end(nil, err)
}
