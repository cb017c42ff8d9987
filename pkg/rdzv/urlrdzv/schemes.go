package urlrdzv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Handler meets the other workers in the way of one URL scheme and returns what this one has found. It is
// given the whole URL, as its user wrote it.
type Handler func(ctx context.Context, url string) (*Result, error)

// Result is where a worker has met the others of its job.
type Result struct {
	// Store is the one that all workers share.
	Store kvstore.Store
	// Rank is this worker's, in [0, WorldSize).
	Rank int
	// WorldSize is the number of workers.
	WorldSize int
	// Release, if not nil, gives back what Store is made of.
	Release func() error
}

// Close gives the store back: the connection to it, and the server where this process hosts one. The host must leave
// last, for its server takes the others' store with it: [kvstore.GetAll] and [kvstore.Synchronize], as the last that all
// do, see to that for rank 0, which hosts; [kvstore.Barrier] does not.
func (r *Result) Close() error {
	if r.Release == nil {
		return nil
	}
	return r.Release()
}

// Schemes are the ways in which the workers of a job meet, by the scheme of a URL (seed 003). Unlike a [Registry],
// which serves the agents of nodes, they serve the workers, and follow torch.distributed's own rendezvous, so that
// workers in Go and in Python meet in one store. Register is not safe beside other calls, all else is.
type Schemes struct {
	handlers map[string]Handler
}

// Options are the options of [NewSchemes].
type Options struct {
	// Lookup finds a variable of the environment; nil means [os.LookupEnv].
	Lookup func(name string) (value string, ok bool)
	// Logger is for the server that a worker of rank 0 hosts. The zero Logger is silent.
	Logger zerolog.Logger
}

// NewSchemes returns the schemes that torch has; more can be registered:
//
//	file:///PATH?rank=R&world_size=W     a file on a file system that all workers share; see [filestore.Store]
//	tcp://HOST:PORT?rank=R&world_size=W  a TCPStore that rank 0 hosts at this address
//	env://                               the same, from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
//
// With env://, rank and world_size in the query count before the environment. Under an agent, elasticrun or torchrun,
// which hosts the store itself, nobody does: TORCHELASTIC_USE_AGENT_STORE is True and the address that of MASTER_ADDR
// and MASTER_PORT. Rank 0, where it hosts, waits until all workers have connected; they are counted in the key "init/".
// Rank 0 listens on all of its host's addresses, and two rendezvous of one Schemes at one port share the server.
//
// These are the rules of torch 2.14. Torch 1.13 keeps its keys elsewhere under an agent: [kvstore.NewPrefixStore]
// with "/worker/attempt_" and TORCHELASTIC_RESTART_COUNT finds them. A tcp:// or env:// query may have
// generation=1, for a store that torch 1.x hosts; torch ignores it, as it does all that it does not know, and
// use_libuv=0 or 1, which chooses among torch's servers, is ignored here.
func NewSchemes(opts Options) *Schemes {
	if opts.Lookup == nil {
		opts.Lookup = os.LookupEnv
	}
	m := &tcpRendezvous{lookup: opts.Lookup, hosts: hosts{log: opts.Logger, open: map[int]*tenancy{}}}
	return &Schemes{handlers: map[string]Handler{"file": fileRendezvous, "tcp": m.tcp, "env": m.env}}
}

// Register adds a scheme, such as "etcd". One that is taken is refused.
func (s *Schemes) Register(scheme string, handler Handler) error {
	scheme = strings.ToLower(scheme)
	switch {
	case scheme == "" || handler == nil:
		return fmt.Errorf("register rendezvous handler for %s://: the scheme is empty or the handler nil", scheme)
	case s.handlers[scheme] != nil:
		return fmt.Errorf("register rendezvous handler for %s://: one is registered already", scheme)
	}
	s.handlers[scheme] = handler
	return nil
}

// Rendezvous returns the rendezvous that url describes. Nothing is tried before its Next.
func (s *Schemes) Rendezvous(url string) (*Rendezvous, error) {
	scheme, _, ok := strings.Cut(url, "://")
	scheme = strings.ToLower(scheme)
	if !ok {
		return nil, fmt.Errorf("rendezvous URL %q: no scheme; write one such as env://", url)
	}
	handler := s.handlers[scheme]
	if handler == nil {
		return nil, fmt.Errorf("rendezvous URL %q: no rendezvous handler for %s://; known: %s",
			url, scheme, strings.Join(slices.Sorted(maps.Keys(s.handlers)), ", "))
	}
	return &Rendezvous{scheme: scheme, url: url, handler: handler}, nil
}

// Rendezvous is the rendezvous of a URL. It is not safe for concurrent use.
type Rendezvous struct {
	scheme  string
	url     string
	handler Handler
	called  bool
}

// Next meets the other workers and returns where. It waits as long as ctx lets it; torch does for 30 minutes by default.
// The Result is the caller's to close.
//
// It can be called once: a second call fails with [rdzv.ErrClosed], also after a failure, for then this worker may
// have been counted already. Of the package's errors a failure wraps [rdzv.ErrTimeout] where the others did not come,
// [rdzv.ErrConnection] where the store could not be reached or hosted, and [rdzv.ErrState] where it is no store. Bad input is
// none of them.
func (r *Rendezvous) Next(ctx context.Context) (*Result, error) {
	if r.called {
		return nil, fmt.Errorf("unable to perform re-rendezvous using %s:// method: %w", r.scheme, rdzv.ErrClosed)
	}
	r.called = true
	result, err := r.handler(ctx, r.url)
	if err != nil {
		return nil, fmt.Errorf("%s:// rendezvous: %w", r.scheme, inFamily(err))
	}
	return result, nil
}

// inFamily gives an error of a store its place among those of a rendezvous.
func inFamily(err error) error {
	switch {
	case errors.Is(err, rdzv.ErrRendezvous):
	case errors.Is(err, kvstore.ErrProtocol):
		return fmt.Errorf("%w: %w", rdzv.ErrState, err)
	case errors.Is(err, kvstore.ErrConnection):
		return fmt.Errorf("%w: %w", rdzv.ErrConnection, err)
	case errors.Is(err, kvstore.ErrTimeout):
		return fmt.Errorf("%w: %w", rdzv.ErrTimeout, err)
	}
	return err
}
