package coord

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipeNetwork connects one client and a server in the same bubble.
type pipeNetwork struct {
	mu     sync.Mutex
	server *Server
	ends   []net.Conn // the client's ends
	down   bool
}

func (p *pipeNetwork) dial(context.Context) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return nil, errors.New("nothing listens")
	}
	here, there := net.Pipe()
	p.ends = append(p.ends, here)
	p.server.ServeConn(there)
	return &halfOpen{Conn: here, mute: make(chan struct{})}, nil
}

// set changes the server and whether connections are possible.
func (p *pipeNetwork) set(down bool, server *Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down, p.server = down, server
}

// breakAll closes all connections.
func (p *pipeNetwork) breakAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, nc := range p.ends {
		nc.Close()
	}
	p.ends = nil
}

// newSessionTest returns a server, a client that owns two keys, and a local watch that has delivered them.
func newSessionTest(t *testing.T) (*Server, *pipeNetwork, *Client, <-chan Batch) {
	t.Helper()
	s := NewServer(ServerOptions{InstanceID: "first"})
	t.Cleanup(func() { _ = s.Close() })
	p := &pipeNetwork{server: s}
	c, err := Dial(t.Context(), DialOptions{Addr: "pipe", Conn: p.dial, TTL: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_ = c.Close(ctx) // the test may have closed its store
	})
	l := openLocal(t, s)
	put(t, c, Op{Key: "a", Owned: true})
	put(t, c, Op{Key: "b", Owned: true})
	seen := watch(t, l, "")
	next(t, seen, "the first batch")
	return s, p, c, seen
}

// expectNoBatch checks that no batch arrives for a time.
func expectNoBatch(t *testing.T, seen <-chan Batch, d time.Duration) {
	t.Helper()
	select {
	case b := <-seen:
		t.Errorf("batch %+v", b)
	case <-time.After(d):
	}
}

// expectKeysDeleted checks that both keys of the client are deleted together, after that time and not much later.
func expectKeysDeleted(t *testing.T, seen <-chan Batch, after time.Duration) {
	t.Helper()
	begin := time.Now()
	expectNoBatch(t, seen, after-time.Millisecond)
	wantBatch(t, seen, Batch{Revision: 3, Events: []Event{{Key: "a", Deleted: true}, {Key: "b", Deleted: true}}})
	if took := time.Since(begin); took > after+tickInterval {
		t.Errorf("the keys were deleted after %v, want %v", took, after)
	}
}

func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, c, seen := newSessionTest(t)
		watched := watch(t, c, "")
		next(t, watched, "the first batch")
		p.set(true, s)
		p.breakAll()
		synctest.Wait()
		began := time.Now()
		committed := make(chan error, 1)
		go func() { // waits for the connection
			_, err := c.Commit(t.Context(), nil, []Op{{Key: "c", Owned: true}})
			committed <- err
		}()
		expectNoBatch(t, seen, 200*time.Millisecond)
		p.set(false, s)
		wantBatch(t, seen, Batch{Revision: 3, Events: []Event{{Key: "c", Create: 3}}})
		if took := time.Since(began); took > 250*time.Millisecond {
			t.Errorf("it was resumed after %v", took)
		}
		if err := <-committed; err != nil {
			t.Error(err)
		}
		first := next(t, watched, "a batch")
		if !first.Resync || len(first.Events) < 2 {
			t.Errorf("the first batch after the interruption is %+v", first)
		}
		// The reconnect has not extended the session: it ends 10 s after its beginning.
		expectNoBatch(t, seen, 9700*time.Millisecond)
		if b := <-seen; len(b.Events) != 3 {
			t.Errorf("batch %+v", b)
		}
		<-c.Lost()
		if !errors.Is(c.Err(), ErrSessionLost) {
			t.Error(c.Err())
		}
	})
}

// TestBrokenConnectionKeepsSession breaks the connection of a living client, as a proxy or a reset that only one end
// receives can. The session must live until its TTL ends.
func TestBrokenConnectionKeepsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, c, seen := newSessionTest(t)
		p.set(true, s)
		expectNoBatch(t, seen, 4*time.Second)
		p.breakAll()
		expectKeysDeleted(t, seen, 6*time.Second)
		p.set(false, s)
		<-c.Lost()
		if !errors.Is(c.Err(), ErrSessionLost) {
			t.Error(c.Err())
		}
		if err := c.Watch(t.Context(), "", nil); !errors.Is(err, ErrSessionLost) {
			t.Error(err)
		}
	})
}

// TestEndSession ends the session of a dead client.
func TestEndSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, c, seen := newSessionTest(t)
		opts := DialOptions{Addr: "pipe", Conn: p.dial}
		for _, token := range []string{"", "x", ".", string(c.Session()) + ".guess"} {
			// the answer does not reveal whether the session exists
			if err := EndSession(t.Context(), opts, token); err != nil {
				t.Error(err)
			}
		}
		expectNoBatch(t, seen, time.Second)
		if err := EndSession(t.Context(), opts, c.Token()); err != nil {
			t.Error(err)
		}
		wantBatch(t, seen, Batch{Revision: 3, Events: []Event{{Key: "a", Deleted: true}, {Key: "b", Deleted: true}}})
		if n := s.Sessions(); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
		if err := EndSession(t.Context(), opts, c.Token()); err != nil {
			t.Errorf("a session that has ended: %v", err)
		}
		p.set(true, s)
		if err := EndSession(t.Context(), opts, c.Token()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("a store that is not there: %v", err)
		}
	})
}

func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, c, seen := newSessionTest(t)
		expectNoBatch(t, seen, 9*time.Second)
		if err := c.KeepAlive(t.Context()); err != nil {
			t.Error(err)
		}
		expectNoBatch(t, seen, 9*time.Second)
		put(t, c, Op{Key: "a", Owned: true}) // not a keep-alive
		next(t, seen, "a batch")
		expectNoBatch(t, seen, time.Second-time.Millisecond)
		if b := <-seen; len(b.Events) != 2 {
			t.Errorf("batch %+v", b)
		}
		<-c.Lost()
		if want := "the job's store has ended this node's session: no keep-alive arrived in time"; c.Err().Error() != want {
			t.Errorf("%v, want %s", c.Err(), want)
		}
	})
}

// TestPause stops the server's clock for a while, as SIGSTOP would.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, c, seen := newSessionTest(t)
		expectNoBatch(t, seen, 9*time.Second)
		s.mu.Lock()
		s.start = s.start.Add(-time.Hour)
		s.mu.Unlock()
		expectNoBatch(t, seen, 900*time.Millisecond)
		if err := c.KeepAlive(t.Context()); err != nil {
			t.Error(err)
		}
		expectKeysDeleted(t, seen, 10*time.Second)
	})
}

// TestTakenSessionIsTakenBack lets a late attempt to resume, which the client has given up, take the session from the
// client's current connection. The client must take it back.
func TestTakenSessionIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, c, seen := newSessionTest(t)
		late := attempt{opts: &DialOptions{Addr: "pipe", Conn: p.dial}, token: c.Token()}
		got, err := late.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer got.nc.Close()
		expectNoBatch(t, seen, time.Second)
		if err := c.KeepAlive(t.Context()); err != nil {
			t.Error(err)
		}
		if s.Sessions() != 1 || c.Err() != nil {
			t.Errorf("%d sessions, %v", s.Sessions(), c.Err())
		}
	})
}

// TestEndSessionAfterTheLastFrames checks that the store handles what a process sent before it died, even if EndSession
// arrives first.
func TestEndSessionAfterTheLastFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, c, seen := newSessionTest(t)
		c.mu.Lock()
		there := c.conn.nc
		c.mu.Unlock()
		ended := make(chan error, 1)
		go func() { ended <- EndSession(t.Context(), DialOptions{Addr: "pipe", Conn: p.dial}, c.Token()) }()
		expectNoBatch(t, seen, 100*time.Millisecond)
		p.set(true, s)
		if _, err := there.Write(appendCommit(nil, commitRequest{request: 99, ops: []Op{{Key: "last"}}})); err != nil {
			t.Fatal(err)
		}
		next(t, seen, "the last commit")
		there.Close()
		if b := next(t, seen, "the end"); len(b.Events) != 2 {
			t.Errorf("%+v", b)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestResumeReplacesConnection resumes a session whose old connection still looks healthy to the server.
func TestResumeReplacesConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, c, seen := newSessionTest(t)
		old := p.ends[0]
		c.mu.Lock()
		c.conn.nc.(*secureConn).nc.(*halfOpen).stays = true // the client closes the connection,
		c.conn.nc.SetReadDeadline(time.Unix(1, 0))          // but the server does not hear of it
		c.mu.Unlock()
		synctest.Wait()
		put(t, c, Op{Key: "c"})
		next(t, seen, "a batch")
		expectNoBatch(t, seen, 9*time.Second)
		old.Close()
		expectNoBatch(t, seen, 500*time.Millisecond)
		if s.Sessions() != 1 {
			t.Error("the session ended with its old connection")
		}
	})
}

// halfOpen is a connection whose end the other side may not notice.
type halfOpen struct {
	net.Conn
	stays bool
	mute  chan struct{} // closed when written data is lost
}

func (h *halfOpen) Write(b []byte) (int, error) {
	select {
	case <-h.mute:
		return len(b), nil
	default:
		return h.Conn.Write(b)
	}
}

func (h *halfOpen) Close() error {
	if h.stays {
		return nil
	}
	return h.Conn.Close()
}

// TestStoreReplaced reconnects to an address where another store runs.
func TestStoreReplaced(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts ServerOptions
		want string
	}{
		{
			name: "of the same job", opts: ServerOptions{InstanceID: "second"},
			want: "the job's store is not available: another store runs at its address: " +
				"the store at pipe is gone: another instance, second, runs there now",
		},
		{
			name: "of another elasticrun", opts: ServerOptions{InstanceID: "first", Secret: []byte("new")},
			want: "the job's store is not available: the store is gone: the store at pipe refuses: " +
				"the store has a shared secret and the agent has none: give the agent the store's secret, by --rdzv-secret-file=FILE or PET_RDZV_SECRET",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, p, c, _ := newSessionTest(t)
				other := NewServer(tc.opts)
				defer other.Close()
				p.set(false, other)
				p.breakAll()
				<-c.Lost()
				if !errors.Is(c.Err(), ErrUnavailable) || c.Err().Error() != tc.want {
					t.Errorf("%v, want %s", c.Err(), tc.want)
				}
			})
		})
	}
}

// TestReconnectDelay counts how often a client tries to reconnect to a dead store.
func TestReconnectDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p, c, _ := newSessionTest(t)
		tries := 0
		var mu sync.Mutex
		c.opts.Conn = func(context.Context) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			tries++
			return nil, errors.New("nothing listens")
		}
		p.breakAll()
		for _, phase := range []struct {
			time        time.Duration
			least, most int
		}{
			{300 * time.Millisecond, 6, 16},
			{700 * time.Millisecond, 14, 36},
			{9 * time.Second, 24, 61},
			{10 * time.Second, 8, 21},
		} {
			time.Sleep(phase.time) //nolint:forbidigo // the bubble's time
			mu.Lock()
			if tries < phase.least || tries > phase.most {
				t.Errorf("%d attempts within %v, want %d to %d", tries, phase.time, phase.least, phase.most)
			}
			tries = 0
			mu.Unlock()
		}
		select {
		case <-c.Lost():
			t.Errorf("a lost connection alone has closed Lost: %v", c.Err())
		default:
		}
		if err := c.Close(t.Context()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Close without a connection: %v", err)
		}
	})
}

// TestCommitInFlight breaks the connection before the answer. The commit's outcome is unknown, and the store must not
// apply it twice.
func TestCommitInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, c, _ := newSessionTest(t)
		s.mu.Lock() // blocks the server
		committed := make(chan error, 1)
		go func() {
			_, err := c.Commit(t.Context(), nil, []Op{{Key: "c", Owned: true}})
			committed <- err
		}()
		kept := make(chan error, 1)
		go func() { kept <- c.KeepAlive(t.Context()) }() // idempotent
		for waiting := 0; waiting < 2; {
			c.mu.Lock()
			waiting = len(c.conn.calls)
			c.mu.Unlock()
		}
		p.breakAllUnlocked()
		if err := <-committed; !errors.Is(err, ErrUnavailable) {
			t.Errorf("commit: %v", err)
		}
		s.mu.Unlock()
		if err := <-kept; err != nil {
			t.Errorf("keep-alive: %v", err)
		}
		time.Sleep(time.Second) //nolint:forbidigo // the bubble's time
		if r := s.Stats().Revision; r > 3 {
			t.Errorf("the commit was done twice: revision %d", r)
		}
	})
}

// breakAllUnlocked closes the connections without the lock, which the server may hold.
func (p *pipeNetwork) breakAllUnlocked() {
	for _, nc := range p.ends {
		nc.Close()
	}
}

// TestDeadPath silently kills the network path of a connection while another path works. The client must move its
// session there without an error.
func TestDeadPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, c, seen := newSessionTest(t)
		watched := watch(t, c, "")
		next(t, watched, "the first batch")
		c.mu.Lock()
		close(c.conn.nc.(*secureConn).nc.(*halfOpen).mute)
		c.mu.Unlock()
		begin := time.Now()
		for range 4 {
			if err := c.KeepAlive(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took != 2500*time.Millisecond {
			t.Errorf("it took %v to replace the connection", took)
		}
		if b := next(t, watched, "a batch"); !b.Resync {
			t.Errorf("batch %+v", b)
		}
		expectNoBatch(t, seen, 5*time.Second)
		if stats := s.Stats(); stats.Sessions != 1 || stats.Conns != 1 || c.Err() != nil {
			t.Errorf("%+v; %v", stats, c.Err())
		}
	})
}
