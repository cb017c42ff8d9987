package rdzv

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// ListenError says that the worker store could not listen where it was told to.
type ListenError struct {
	Addr string // host as configured
	Port int
	Err  error // errors.Is tells syscall.EADDRINUSE, EADDRNOTAVAIL, EACCES
}

func (e *ListenError) Error() string {
	return fmt.Sprintf("listen for the worker store on %s: %v", net.JoinHostPort(e.Addr, strconv.Itoa(e.Port)), e.Err)
}

// Unwrap makes it an [ErrConnection] too.
func (e *ListenError) Unwrap() []error { return []error{ErrConnection, e.Err} }

// workerStore is one round's TCPStore server for the workers. It listens from
// the moment it is made and forgets everything when closed.
type workerStore struct {
	server *kvstore.Server
	served chan error
	port   int
}

// openWorkerStore listens on exactly addr, not on all interfaces: on one node
// every client is local. Port 0 takes a free one.
func openWorkerStore(addr string, port int, log zerolog.Logger) (*workerStore, error) {
	ln, err := listen(addr, port)
	if err != nil {
		return nil, err
	}
	s := &workerStore{
		server: kvstore.NewServer(kvstore.ServerOptions{Logger: log}),
		served: make(chan error, 1),
		port:   ln.Addr().(*net.TCPAddr).Port,
	}
	go func() { s.served <- s.server.Serve(ln) }()
	return s, nil
}

// close ends every connection and waits for the server's goroutines.
func (s *workerStore) close() error {
	err := s.server.Close()
	if served := <-s.served; !errors.Is(served, kvstore.ErrClosed) {
		err = errors.Join(err, fmt.Errorf("serve the worker store: %w", served))
	}
	return err
}

func listen(addr string, port int) (net.Listener, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort(addr, strconv.Itoa(port)))
	if err != nil {
		return nil, &ListenError{Addr: addr, Port: port, Err: err}
	}
	return ln, nil
}

// freePort names a port that was free a moment ago, for the case that a worker
// is to host the store itself and an agent cannot hold the port for it.
func freePort(addr string, port int) (int, error) {
	ln, err := listen(addr, port)
	if err != nil {
		return 0, err
	}
	port = ln.Addr().(*net.TCPAddr).Port
	return port, ln.Close()
}
