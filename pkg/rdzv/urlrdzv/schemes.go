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

// Handler performs the rendezvous of one URL scheme for this worker. It gets the whole URL, as the user wrote it. Each
// call of [Rendezvous.Next] calls a registered handler. A handler whose rendezvous cannot be repeated returns
// [rdzv.ErrClosed] after the first call.
type Handler func(ctx context.Context, url string) (*Result, error)

// Result is what a worker has learned about its job.
type Result struct {
	// Store is shared by all workers.
	Store kvstore.Store
	// Rank is this worker's rank, in [0, WorldSize).
	Rank int
	// WorldSize is the number of workers.
	WorldSize int
	// Release, if not nil, closes Store and what belongs to it.
	Release func() error
}

// Close closes the connection to the store, and the server if this process hosts it. The host must close last, since
// the others lose their store with the server. If [kvstore.GetAll] or [kvstore.Synchronize] is the last call of every
// worker, rank 0, which hosts, returns from it last. [kvstore.Barrier] does not ensure that.
func (r *Result) Close() error {
	if r.Release == nil {
		return nil
	}
	return r.Release()
}

// Schemes performs the rendezvous of workers by the scheme of a URL. See the package comment for its concurrency rules.
type Schemes struct {
	handlers map[string]Handler
	once     map[string]bool // the schemes of torch, whose rendezvous cannot be repeated
}

// Options are the options of [NewSchemes].
type Options struct {
	// Lookup returns an environment variable. Nil means [os.LookupEnv].
	Lookup func(name string) (value string, ok bool)
	// Logger is used by the server that a worker of rank 0 hosts. The zero Logger discards everything.
	Logger zerolog.Logger
}

// NewSchemes returns the schemes of torch. More can be registered.
//
//	file:///PATH?rank=R&world_size=W     a file on a file system that all workers share; see [filestore.Store]
//	tcp://HOST:PORT?rank=R&world_size=W  a TCPStore that rank 0 hosts at this address
//	env://                               the same, from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
//
// With env://, rank and world_size in the query take precedence over the environment.
//
// Rank 0 hosts the store unless an agent, elasticrun or torchrun, hosts it already: TORCHELASTIC_USE_AGENT_STORE is
// True and the store's address is that of MASTER_ADDR and MASTER_PORT. If rank 0 hosts, it listens on all addresses of
// its machine and waits until all workers have connected, which the key "init/" counts. Two rendezvous of one Schemes
// at one port share the server.
//
// These are the rules of torch 2.14. Under an agent, torch 1.13 adds a prefix to its keys, which a store from
// [kvstore.NewPrefixStore] with "/worker/attempt_" and TORCHELASTIC_RESTART_COUNT adds too. The query of tcp:// and
// env:// may have generation=1, for a store that torch 1.x hosts; torch ignores that parameter. It may have use_libuv=0
// or 1, which selects one of torch's servers and has no effect here.
func NewSchemes(opts Options) *Schemes {
	if opts.Lookup == nil {
		opts.Lookup = os.LookupEnv
	}
	r := &tcpRendezvous{lookup: opts.Lookup, servers: sharedServers{log: opts.Logger, open: map[int]*sharedServer{}}}
	return &Schemes{
		handlers: map[string]Handler{"file": fileRendezvous, "tcp": r.tcp, "env": r.env},
		once:     map[string]bool{"file": true, "tcp": true, "env": true},
	}
}

// Register adds a scheme, such as "etcd". It refuses a scheme that is registered already.
func (s *Schemes) Register(scheme string, handler Handler) error {
	scheme = strings.ToLower(scheme)
	switch {
	case scheme == "" || handler == nil:
		return fmt.Errorf("register rendezvous handler for %s://: the scheme is empty or the handler is nil", scheme)
	case s.handlers[scheme] != nil:
		return fmt.Errorf("register rendezvous handler for %s://: already registered", scheme)
	}
	s.handlers[scheme] = handler
	return nil
}

// Rendezvous returns the rendezvous that url describes. It connects to nothing: its Next does.
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
	return &Rendezvous{scheme: scheme, url: url, handler: handler, once: s.once[scheme]}, nil
}

// Rendezvous is the rendezvous of one worker by a URL. It is not safe for concurrent use.
type Rendezvous struct {
	scheme  string
	url     string
	handler Handler
	once    bool // a second Next fails
	called  bool
}

// Next performs the rendezvous. It waits as long as ctx allows; torch waits 30 minutes by default. The caller closes
// the Result.
//
// With the schemes of torch, Next can be called once. A second call fails with [rdzv.ErrClosed], even after a failure,
// since the store may have counted this worker already. A registered scheme decides for itself: each Next calls its
// [Handler]. The error wraps [rdzv.ErrTimeout] if other workers did not come, [rdzv.ErrConnection] if
// the store could not be reached or hosted, and [rdzv.ErrState] if the peer or the file is not a store. It wraps none
// of them for invalid input.
func (r *Rendezvous) Next(ctx context.Context) (*Result, error) {
	if r.once && r.called {
		return nil, fmt.Errorf("unable to perform re-rendezvous using %s:// method: %w", r.scheme, rdzv.ErrClosed)
	}
	r.called = true
	result, err := r.handler(ctx, r.url)
	if err != nil {
		return nil, fmt.Errorf("%s:// rendezvous: %w", r.scheme, inFamily(err))
	}
	return result, nil
}

// inFamily wraps an error of a store in the error of package rdzv that matches it.
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
