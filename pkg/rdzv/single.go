package rdzv

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/rs/zerolog"
)

// Names of the backends in this package.
const (
	BackendC10d   = "c10d"
	BackendStatic = "static"
)

// Addresses that torchrun gives a static job that names none.
const (
	StaticMasterAddr = "127.0.0.1"
	StaticMasterPort = 29500
)

// SingleNode creates handlers for jobs of one node, where every rendezvous
// completes at once and membership never changes. Register it as "c10d" and as
// "static"; the two differ only in name, since the caller resolves torchrun's
// default addresses.
type SingleNode struct {
	// Backend is the name the handlers report.
	Backend string
	// Options may be shared by several creators; nil means the zero value.
	Options *SingleNodeOptions
}

// SingleNodeOptions tell how often the job may fail and how the worker store is offered.
type SingleNodeOptions struct {
	// MaxRestarts is how often the job is run again after a failure.
	MaxRestarts int
	// LocalAddr is announced as MASTER_ADDR where the member fixes none; empty
	// means 127.0.0.1, which needs no name resolution.
	LocalAddr string
	// WorkersHostStore leaves the store to the worker of rank 0
	// (TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1): only a free port is chosen.
	WorkersHostStore bool
	// Logger receives the store's own log; the zero value discards.
	Logger *zerolog.Logger
}

// Create implements [Creator].
func (c SingleNode) Create(_ context.Context, p Parameters) (Handler, error) {
	if p.MaxNodes > 1 {
		return nil, fmt.Errorf("create rendezvous backend %q: it serves one node, not %d", p.Backend, p.MaxNodes)
	}
	h := &singleHandler{backend: c.Backend, runID: p.RunID, log: zerolog.Nop()}
	if c.Options != nil {
		h.opts = *c.Options
		if c.Options.Logger != nil {
			h.log = *c.Options.Logger
		}
	}
	return h, nil
}

// singleHandler is the rendezvous of one node with itself.
type singleHandler struct {
	backend string
	runID   string
	opts    SingleNodeOptions
	log     zerolog.Logger

	mu       sync.Mutex
	ended    *Outcome // nil while rounds can form
	round    int      // number of the next round
	restarts int      // charged so far
	store    *workerStore
}

func (h *singleHandler) Backend() string { return h.backend }
func (h *singleHandler) RunID() string   { return h.runID }

// NextRendezvous opens a new, empty worker store and returns a round of one, or charges a failure for which no restart is
// left. That verdict does not depend on ctx: what failed has failed, even if somebody told the launcher to stop since.
func (h *singleHandler) NextRendezvous(ctx context.Context, self Member) (*Round, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended == nil && self.Failure != nil {
		h.charge(self.Failure)
	}
	if h.ended != nil {
		return nil, fmt.Errorf("join rendezvous %q: %w", h.runID, &EndedError{Outcome: *h.ended})
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("join rendezvous %q: %w", h.runID, context.Cause(ctx))
	}
	if self.LocalWorldSize < 1 {
		return nil, fmt.Errorf("join rendezvous %q: local world size %d: must be at least 1", h.runID, self.LocalWorldSize)
	}
	if err := h.closeStore(); err != nil {
		h.log.Warn().Err(err).Msg("closing the worker store of the round before")
	}
	addr := cmp.Or(self.MasterAddr, h.opts.LocalAddr, StaticMasterAddr)
	port, err := h.offerStore(addr, self.MasterPort)
	if err != nil && h.round > 0 {
		// The address was right before: that it was lost meanwhile is nobody's bad input.
		err = fmt.Errorf("%w: %s", ErrConnection, err.Error())
	}
	if err != nil {
		return nil, fmt.Errorf("join rendezvous %q: %w", h.runID, err)
	}
	round := &Round{
		Number:        h.round,
		WorldSize:     1,
		Assignment:    Assign([]Member{self})[0],
		Restarts:      h.restarts,
		MasterAddr:    addr,
		MasterPort:    port,
		UseAgentStore: !h.opts.WorkersHostStore,
	}
	h.round++
	return round, nil
}

// charge counts a failure, or ends the job by it.
func (h *singleHandler) charge(f *Failure) {
	if h.restarts >= h.opts.MaxRestarts {
		h.ended = &Outcome{Ending: EndFailed, Cause: f, Restarts: h.restarts}
		return
	}
	h.restarts++
}

// Succeed ends the job: there are no other nodes to wait for.
func (h *singleHandler) Succeed(ctx context.Context) (*Stop, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("finish rendezvous %q: %w", h.runID, context.Cause(ctx))
	}
	h.end(EndSucceeded)
	return nil, nil
}

// end keeps the first of several endings.
func (h *singleHandler) end(how Ending) {
	if h.ended == nil {
		h.ended = &Outcome{Ending: how, Restarts: h.restarts}
	}
}

// offerStore makes the worker store listen and returns its port.
func (h *singleHandler) offerStore(addr string, port int) (int, error) {
	if h.opts.WorkersHostStore {
		return freePort(addr, port)
	}
	s, err := openWorkerStore(addr, port, h.log)
	if err != nil {
		return 0, err
	}
	h.store = s
	return s.port, nil
}

func (h *singleHandler) closeStore() error {
	if h.store == nil {
		return nil
	}
	s := h.store
	h.store = nil
	return s.close()
}

func (h *singleHandler) IsClosed(context.Context) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended != nil, nil
}

func (h *singleHandler) SetClosed(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(EndClosed)
	return nil
}

// No other node can come, fail or be told anything.

func (h *singleHandler) NumNodesWaiting() int { return 0 }
func (h *singleHandler) Stops() <-chan Stop   { return nil }
func (h *singleHandler) Fail(Failure)         {}
func (h *singleHandler) Leave()               {}

func (h *singleHandler) Shutdown(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(EndClosed)
	return h.closeStore()
}
