package elastic

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Front is one listening port for agents and for torch's clients, told apart by the first byte they send. The clients' keyspace can be replaced
// by a new, empty one while the port and the agents' connections stay.
type Front struct {
	ln     net.Listener
	agents func(net.Conn)
	log    zerolog.Logger
	stop   chan struct{} // closed when Close has begun
	done   chan struct{} // closed when nothing is accepted any more

	mu      sync.Mutex
	current *keyspace // nil once closed
}

// keyspace is one TCPStore server and the source of its connections.
type keyspace struct {
	*rdzv.WorkerStore
	source *source
}

// NewFront serves ln: agents get the agents' connections, whose first byte is still to be read; it must not block. Close ends it.
func NewFront(ln net.Listener, agents func(net.Conn), log zerolog.Logger) *Front {
	f := &Front{ln: ln, agents: agents, log: log, stop: make(chan struct{}), done: make(chan struct{})}
	f.current = f.newKeyspace()
	go f.accept()
	return f
}

// Addr is where it listens.
func (f *Front) Addr() net.Addr { return f.ln.Addr() }

// Renew replaces the clients' keyspace by an empty one and closes their connections.
func (f *Front) Renew() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current == nil {
		return net.ErrClosed
	}
	err := f.current.Close()
	f.current = f.newKeyspace()
	return err
}

// Close ends the listening and the clients' connections. Those that agents got are theirs.
func (f *Front) Close() error {
	f.mu.Lock()
	k := f.current
	f.current = nil
	f.mu.Unlock()
	if k == nil {
		return nil
	}
	close(f.stop)
	err := errors.Join(f.ln.Close(), k.Close()) // in this order: accept may be waiting for the keyspace
	<-f.done
	return err
}

func (f *Front) newKeyspace() *keyspace {
	src := &source{addr: f.ln.Addr(), conns: make(chan net.Conn), closed: make(chan struct{})}
	return &keyspace{rdzv.ServeWorkerStore(src, kvstore.ServerOptions{Logger: f.log, Agents: f.agents}), src}
}

// acceptPause is between attempts to accept where something is lacking.
const acceptPause = 100 * time.Millisecond

// accept hands each connection to the keyspace of the moment.
func (f *Front) accept() {
	defer close(f.done)
	level := zerolog.WarnLevel // of the first failure in a row
	for {
		c, err := f.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // a lack of files, a network that is down: it passes
			f.log.WithLevel(level).Err(err).Msg("accept a connection, try again")
			level = zerolog.DebugLevel
			select {
			case <-time.After(acceptPause):
			case <-f.stop:
			}
			continue
		}
		level = zerolog.WarnLevel
		f.mu.Lock()
		k := f.current
		f.mu.Unlock()
		if k == nil || !k.source.offer(c) {
			_ = c.Close()
		}
	}
}

// source is a listener whose connections are offered to it.
type source struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// offer passes a connection on; false once the source is closed.
func (s *source) offer(c net.Conn) bool {
	select {
	case s.conns <- c:
		return true
	case <-s.closed:
		return false
	}
}

func (s *source) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *source) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

func (s *source) Addr() net.Addr { return s.addr }
