package urlrdzv

import (
	"context"
	"sync"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/tcplisten"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// hosts are the servers that rank 0 hosts in this process, by their port: several rendezvous at one port share
// one, as those of torch do in one process.
type hosts struct {
	log zerolog.Logger

	mu   sync.Mutex
	open map[int]*tenancy
}

// tenancy is a server and the number of those that share it.
type tenancy struct {
	store   *rdzv.WorkerStore
	tenants int
}

// take makes sure that a server listens at port, on all addresses of this host. The last release ends it.
func (h *hosts) take(ctx context.Context, port int) (release func() error, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.open[port]
	if t == nil {
		ln, err := tcplisten.Listen(ctx, "", port)
		if err != nil {
			return nil, &rdzv.ListenError{Port: port, Err: err}
		}
		t = &tenancy{store: rdzv.ServeWorkerStore(ln, tcpstore.ServerOptions{Logger: h.log})}
		h.open[port] = t
	}
	t.tenants++
	return sync.OnceValue(func() error { return h.leave(port, t) }), nil
}

// leave ends the server with its last tenant.
func (h *hosts) leave(port int, t *tenancy) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.tenants--; t.tenants > 0 {
		return nil
	}
	delete(h.open, port)
	return t.store.Close()
}
