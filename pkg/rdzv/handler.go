package rdzv

import (
	"context"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// Handler runs rendezvous for one run id (seed 000, RendezvousHandler).
type Handler interface {
	// Backend returns the name that the handler's creator is registered under.
	Backend() string
	// RunID identifies the job among all that share the backend.
	RunID() string
	// NextRendezvous enters the next round as self and blocks until that round
	// is decided and this node is in it. It first gives up what this node held in the
	// round before, its worker store included. Errors wrap [ErrClosed],
	// [ErrTimeout], [ErrConnection], [ErrState] or [ErrGracefulExit]; when ctx
	// ends first they wrap its cause.
	NextRendezvous(ctx context.Context, self Member) (*Round, error)
	// IsClosed reports whether the run id was closed. Closing spreads
	// eventually; it synchronizes nothing.
	IsClosed(ctx context.Context) (bool, error)
	// SetClosed closes the run id for all nodes.
	SetClosed(ctx context.Context) error
	// NumNodesWaiting returns how many nodes arrived too late for the round
	// that is running and would be in the next one.
	NumNodesWaiting() int
	// Changed receives a value when NumNodesWaiting may have changed; values
	// that nobody takes are merged into one. It is never closed and may be nil
	// where membership cannot change.
	Changed() <-chan struct{}
	// Shutdown gives back everything the handler holds: connections, listeners
	// and the worker store. It may be called more than once.
	Shutdown(ctx context.Context) error
}

// Member is what a node says of itself when it enters a round.
type Member struct {
	// Role of the node's workers.
	Role string
	// LocalWorldSize is the number of workers on the node, at least 1. It may
	// differ between nodes.
	LocalWorldSize int
	// MasterAddr and MasterPort are the worker store's address where the worker
	// spec fixes them (seed 002); empty and 0 let the backend choose.
	MasterAddr string
	MasterPort int
}

// Round is a decided membership as one of its nodes sees it.
type Round struct {
	// Number counts the rounds of the run id from 0, restarts and membership
	// changes alike.
	Number int
	// Rank is this node's group rank, in [0, WorldSize).
	Rank int
	// WorldSize is the number of nodes.
	WorldSize int
	// Assignment holds the ranks of this node's workers.
	Assignment Assignment
	// Store is the agents' store, with keys of this round only.
	Store kvstore.Store
	// MasterAddr and MasterPort are where the workers find their store.
	MasterAddr string
	MasterPort int
	// UseAgentStore says that the worker store is hosted by an agent and
	// listens already; false leaves the hosting to the worker of rank 0.
	UseAgentStore bool
}
