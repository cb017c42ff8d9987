package coord

import (
	"cmp"
	"container/list"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// ServerOptions are the options of a Server.
type ServerOptions struct {
	// Logger gets a line for each session that is lost, for the first client of each address that is refused for a
	// Reason, and for the number of those after it, once a minute. The zero Logger is silent. It must not call the Server.
	Logger zerolog.Logger
	// Version is elasticrun's version, which clients must have too. Empty: any will do.
	Version string
	// RunID is the one run that the store serves. Empty: it serves any.
	RunID string
	// Secret, if not empty, must be known to clients. It is not sent, but what is exchanged to prove it lets an
	// eavesdropper try guesses: it should not be guessable.
	Secret []byte
	// Joined is called with the run id of each client that gets a session, or has it again, before its first request is served. It
	// may block that client. Nil is not called.
	OnJoin func(runID string)
	// Admit says why a client of that run cannot have a new session now, in a line, or "" if it can: then it gets one, and Joined is called.
	// Who resumes a session is not asked about. Admit must not block, nor call the Server. Nil admits all.
	Admit func(runID string) (refusal string)
	// InstanceID tells this store from another at the same address. Empty: a random one.
	InstanceID string
	// SessionTTL is for clients that ask for no other. 0 means 15 s.
	SessionTTL time.Duration
	// MaxAgents is the number of sessions that clients may have at a time. 0 means no limit.
	MaxAgents int
	// MaxMemory is about the number of bytes that the store may take: one half for keys, sessions and watches, the other
	// for requests and answers under way. What would exceed the first is ErrFull, and no newcomer gets a session; who takes
	// most of the second is disconnected. 0 means 1 GiB.
	MaxMemory int64
	// HandshakeTimeout is how long a client may take to get a session. 0 means 5 s.
	HandshakeTimeout time.Duration
	// StallTimeout is how long a client may take for each 64 KiB of what it is told; then its connection is closed.
	// 0 means 10 s.
	StallTimeout time.Duration
}

// ErrServerClosed is that of a Server that has been closed.
var ErrServerClosed = errors.New("coordination store: server closed")

// Server is a coordination store. Use NewServer or OpenServer.
type Server struct {
	opts  ServerOptions
	start time.Time // the origin of the core's clock

	received, sent meter

	// mu guards all that follows, and all fields of conns and of local stores that say so. It is the only lock;
	// nobody waits for anything but memory while he holds it.
	mu           sync.Mutex
	core         *core
	disk         *disk // nil: all is in memory
	conns        map[*conn]struct{}
	sessionConns map[*session]*conn // the connection of each session that has one
	locals       map[*local]struct{}
	remote       int // sessions that are not local
	reached      map[netip.Addr]int
	stats        Stats
	ticking      bool          // tick runs
	nextTick     time.Duration // when it is to look next
	drain        chan struct{} // closed when Shutdown has begun and no remote session is left; nil before
	closed       bool
	stop         chan struct{} // closed with it
	failure      error         // why the store has ended by itself
	fresh        bool          // it began without the sessions of another process
	refusals     refusals
	pending      list.List      // of the *conns without a session yet, in the order in which they came
	inflight     int64          // bytes that connections take
	closeDisk    sync.Once      // gives the disk back
	running      sync.WaitGroup // connections and tick
}

// NewServer returns a store without keys, that keeps them in memory.
func NewServer(opts ServerOptions) *Server {
	if opts.InstanceID == "" {
		opts.InstanceID = rand.Text()
	}
	opts.SessionTTL = cmp.Or(max(opts.SessionTTL, 0), 15*time.Second)
	opts.HandshakeTimeout = cmp.Or(max(opts.HandshakeTimeout, 0), 5*time.Second)
	opts.StallTimeout = cmp.Or(max(opts.StallTimeout, 0), 10*time.Second)
	opts.MaxMemory = cmp.Or(max(opts.MaxMemory, 0), defaultMax)
	core := newCore()
	core.budget.limitMemory(opts.MaxMemory)
	return &Server{
		opts: opts, fresh: true, start: time.Now(), core: core, stop: make(chan struct{}),
		conns: map[*conn]struct{}{}, sessionConns: map[*session]*conn{}, locals: map[*local]struct{}{}, reached: map[netip.Addr]int{},
	}
}

// Fresh reports whether the store began without sessions that another process of it had: it keeps all in memory, or its folder was new.
func (s *Server) Fresh() bool { return s.fresh }

// InstanceID returns what tells this store from any other.
func (s *Server) InstanceID() string { return s.opts.InstanceID }

// ServeConn serves an agent's connection, of which nothing has been read, and owns it from then on. It does not block:
// Close waits for what it starts. After Close it closes nc.
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

// Sessions returns how many sessions there are, those of Local apart.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remote
}

// HasSession reports whether a client of that run has a session. One that has come back after the store was opened anew counts from then on. If
// a client has none by now, ServerOptions.Joined will be called when it has.
func (s *Server) HasSession(runID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, session := range s.core.sessions {
		if session.runID == runID {
			return true
		}
	}
	return false
}

// ReachedAt returns the addresses of this host at which clients of a run have got a session, the one that most did first. Who is of no run may
// be anybody, who only looks.
func (s *Server) ReachedAt() []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	addrs := make([]netip.Addr, 0, len(s.reached))
	for a := range s.reached {
		addrs = append(addrs, a)
	}
	slices.SortFunc(addrs, func(a, b netip.Addr) int {
		return cmp.Or(cmp.Compare(s.reached[b], s.reached[a]), a.Compare(b))
	})
	return addrs
}

// Shutdown lets nobody in any more, waits until no client has a session, and then does what Close does. If ctx ends
// before, it returns its cause; Close is the way to end the rest.
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
		return fmt.Errorf("shut down coordination store that has %d clients: %w", s.Sessions(), context.Cause(ctx))
	}
}

// Close ends the store: clients are told so, and lose their sessions for ErrUnavailable; those of a store on a disk
// wait for it to come back. It returns when nothing that the server has started is left. Its error is that of the
// disk.
func (s *Server) Close() error {
	s.mu.Lock()
	var last []byte
	if s.disk == nil {
		last = appendOver(nil, codeUnavailable, "its host has closed it")
	}
	s.end(last, fmt.Errorf("%w: it was closed", ErrUnavailable))
	s.mu.Unlock()
	s.running.Wait()
	var err error
	s.closeDisk.Do(func() {
		if s.disk != nil {
			err = s.disk.close()
		}
	})
	return err
}

// end begins to end the store. Clients get a last frame, local stores an error. s.mu is held.
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

// tickInterval is how often tick looks at least, so as to notice that the process was stopped.
const tickInterval = 100 * time.Millisecond

// clock returns the time for the core. If nobody has looked since it was due, this process did not run, or had no
// time to: then nobody could be heard, and no session is to end for that. s.mu is held.
func (s *Server) clock() time.Duration {
	now := time.Since(s.start)
	if late := now - s.nextTick; s.ticking && late > tickInterval {
		s.core.addPause(late)
		s.nextTick = now
		if late > time.Second {
			s.opts.Logger.Warn().Stringer("pause", late.Round(time.Millisecond)).Msg("coordination store did not run; its sessions live longer by that")
		}
	}
	return now
}

// tick ends what has ended by time, until there is nothing that could.
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
			s.opts.Logger.Warn().Str("session", string(ended.id)).Bool("connected", s.sessionConns[ended] != nil).Msg("session is lost")
			s.sessionEnded(ended, "it was silent for too long")
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

// mayExpire is called when something may have come that ends by time. s.mu is held.
func (s *Server) startTicker() {
	if _, ok := s.core.nextExpiry(); !ok || s.ticking || s.closed {
		return
	}
	s.ticking, s.nextTick = true, time.Since(s.start)
	s.running.Go(s.tick)
}

// ended is called when a client's session has ended. Its connection, if it has one, is told why. s.mu is held.
func (s *Server) sessionEnded(session *session, why string) {
	if c := s.sessionConns[session]; c != nil {
		delete(s.sessionConns, session)
		c.session = nil
		c.closeWith(appendOver(nil, codeLost, why))
	}
	if s.remote--; s.remote == 0 && s.drain != nil {
		close(s.drain)
	}
}

// Ended is closed when the store has begun to end: because of Close, of Shutdown, or of an error that Err returns.
func (s *Server) Ended() <-chan struct{} { return s.stop }

// Err returns the error that ended the store, such as that of a disk that cannot be written. It is nil while the store
// runs, and after a Close that came first.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// Fail ends the store because of err: local sessions are lost for err, and clients look for the store again. The caller
// still has to call Close. After the store has ended Fail does nothing.
func (s *Server) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(err)
}

// fail is Fail. s.mu is held.
func (s *Server) fail(err error) {
	if s.closed {
		return
	}
	s.failure = err
	s.end(nil, err)
}

// A connection is pending until it has a session: until then it has proved nothing, and is the first to be closed.

// pend takes note of a pending connection. Where there are too many the oldest is closed. mu is held.
func (s *Server) addPending(c *conn) {
	c.pendingElem = s.pending.PushBack(c)
	if most := max(minPending, int(s.opts.MaxMemory/2/pendingSize)); s.pending.Len() > most {
		s.shedPending(1)
	}
}

// leastPending is how many connections may be in the handshake in any store.
const minPending = 64

// unpend is called when c has a session, or ends. mu is held.
func (s *Server) removePending(c *conn) {
	if c.pendingElem != nil {
		s.pending.Remove(c.pendingElem)
		c.pendingElem = nil
	}
}

// ShedPending closes up to n connections that have no session yet, the oldest first, and returns how many. It is for
// whoever has to open files and cannot.
func (s *Server) ShedPending(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shedPending(n)
}

func (s *Server) shedPending(n int) (closed int) {
	for ; closed < n && s.pending.Len() > 0; closed++ {
		c := s.pending.Front().Value.(*conn)
		s.removePending(c)
		c.nc.Close() // run ends
	}
	return closed
}
