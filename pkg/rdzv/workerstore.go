package rdzv

import (
	"errors"
	"fmt"
	"net"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
)

// WorkerStore is a TCPStore server that forgets everything when it is closed.
type WorkerStore struct {
	server *tcpstore.Server
	addr   *net.TCPAddr
	served chan struct{} // closed when the server has ended, with err
	err    error
}

// ServeWorkerStore serves an empty store on ln, which it owns from then on.
func ServeWorkerStore(ln net.Listener, opts tcpstore.ServerOptions) *WorkerStore {
	s := &WorkerStore{server: tcpstore.NewServer(opts), served: make(chan struct{}), addr: ln.Addr().(*net.TCPAddr)}
	go func() {
		defer close(s.served)
		s.err = s.server.Serve(ln)
	}()
	return s
}

// Addr is where it listens.
func (s *WorkerStore) Addr() net.Addr { return s.addr }

// Port is where it listens.
func (s *WorkerStore) Port() int { return s.addr.Port }

// Ended is closed when the store serves nobody any more, because of Close or of an error that Err returns.
func (s *WorkerStore) Ended() <-chan struct{} { return s.served }

// Err returns the error that ended the store. It is nil while the store serves, and after Close.
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

// Renew closes its clients' connections and forgets everything, and goes on listening; [kvstore.ErrClosed] after Close.
func (s *WorkerStore) Renew() error { return s.server.Reset() }

// Close ends every connection and waits for the server's goroutines. It may be called again.
func (s *WorkerStore) Close() error {
	err := s.server.Close()
	if <-s.served; !errors.Is(s.err, kvstore.ErrClosed) {
		err = errors.Join(err, fmt.Errorf("serve the worker store: %w", s.err))
	}
	return err
}
