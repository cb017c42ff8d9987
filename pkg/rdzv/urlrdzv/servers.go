package urlrdzv

import (
	"context"
	"sync"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/tcplisten"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// sharedServers are the servers that this process hosts as rank 0, by port. Several rendezvous at one port share a
// server, as in one process of torch.
type sharedServers struct {
	log zerolog.Logger

	mu   sync.Mutex
	open map[int]*sharedServer
}

// sharedServer is a server and the number of its users.
type sharedServer struct {
	store *rdzv.WorkerStore
	users int
}

// acquire makes sure that a server listens at port, on all addresses of this machine. The last release closes it.
func (s *sharedServers) acquire(ctx context.Context, port int) (release func() error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.open[port]
	if t == nil {
		ln, err := tcplisten.Listen(ctx, "", port)
		if err != nil {
			return nil, &rdzv.ListenError{Port: port, Err: err}
		}
		t = &sharedServer{store: rdzv.ServeWorkerStore(ln, tcpstore.ServerOptions{Logger: s.log})}
		s.open[port] = t
	}
	t.users++
	return sync.OnceValue(func() error { return s.release(port, t) }), nil
}

// release closes the server after its last user.
func (s *sharedServers) release(port int, t *sharedServer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.users--; t.users > 0 {
		return nil
	}
	delete(s.open, port)
	return t.store.Close()
}
