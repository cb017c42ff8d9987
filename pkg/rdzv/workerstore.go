package rdzv

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// WorkerStore is a TCPStore server that forgets everything when it is closed.
type WorkerStore struct {
	server *kvstore.Server
	served chan error
	port   int
}

// ServeWorkerStore serves an empty store on ln, which it owns from then on.
func ServeWorkerStore(ln net.Listener, opts kvstore.ServerOptions) *WorkerStore {
	s := &WorkerStore{server: kvstore.NewServer(opts), served: make(chan error, 1), port: ln.Addr().(*net.TCPAddr).Port}
	go func() { s.served <- s.server.Serve(ln) }()
	return s
}

// listen listens on exactly addr; port 0 takes a free one.
func listen(addr string, port int) (net.Listener, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort(addr, strconv.Itoa(port)))
	if err != nil {
		return nil, &ListenError{Addr: addr, Port: port, Err: err}
	}
	return ln, nil
}

// Port is where it listens.
func (s *WorkerStore) Port() int { return s.port }

// Close ends every connection and waits for the server's goroutines.
func (s *WorkerStore) Close() error {
	err := s.server.Close()
	if served := <-s.served; !errors.Is(served, kvstore.ErrClosed) {
		err = errors.Join(err, fmt.Errorf("serve the worker store: %w", served))
	}
	return err
}
