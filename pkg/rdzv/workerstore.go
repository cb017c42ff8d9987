package rdzv

import (
	"errors"
	"fmt"
	"net"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
)

// WorkerStore is a TCPStore server on one listener. It keeps its keys in memory until Close.
type WorkerStore struct {
	server *tcpstore.Server
	addr   *net.TCPAddr
	served chan struct{} // closed when the server has ended, after err is set
	err    error
}

// ServeWorkerStore serves an empty store on ln, a TCP listener. The store owns ln and closes it.
func ServeWorkerStore(ln net.Listener, opts tcpstore.ServerOptions) *WorkerStore {
	s := &WorkerStore{server: tcpstore.NewServer(opts), served: make(chan struct{}), addr: ln.Addr().(*net.TCPAddr)}
	go func() {
		defer close(s.served)
		s.err = s.server.Serve(ln)
	}()
	return s
}

// Addr returns the address at which the store listens.
func (s *WorkerStore) Addr() *net.TCPAddr { return s.addr }

// Port returns the port at which the store listens.
func (s *WorkerStore) Port() int { return s.addr.Port }

// Ended returns a channel that is closed when the store has stopped serving, after Close or an error. See Err.
func (s *WorkerStore) Ended() <-chan struct{} { return s.served }

// Err returns the error that ended the store. It is nil while the store serves and after Close.
func (s *WorkerStore) Err() error {
	select {
	case <-s.served:
	default:
		return nil
	}
	if errors.Is(s.err, kvstore.ErrClosed) {
		return nil
	}
	return s.err
}

// Reset closes the clients' connections and deletes all keys, and the store goes on listening. The error is
// [kvstore.ErrClosed] after Close.
func (s *WorkerStore) Reset() error { return s.server.Reset() }

// Close closes every connection and waits for the server's goroutines. It may be called more than once.
func (s *WorkerStore) Close() error {
	err := s.server.Close()
	if <-s.served; !errors.Is(s.err, kvstore.ErrClosed) {
		err = errors.Join(err, fmt.Errorf("serve the worker store: %w", s.err))
	}
	return err
}
