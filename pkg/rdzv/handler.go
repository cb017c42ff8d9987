package rdzv

import "context"

// Handler runs rendezvous for one run id (seed 000, RendezvousHandler). Which nodes make up a round, whether a failure
// is charged and when the job has ended is decided here, for all nodes alike; an agent only tells what its workers do.
// A round runs from NextRendezvous until the agent calls it again.
type Handler interface {
	// Backend returns the name that the handler's creator is registered under.
	Backend() string
	// RunID identifies the job among all that share the backend.
	RunID() string
	// NextRendezvous tells that no worker of this node is left, and blocks until the next round is decided and this
	// node is in it. It first gives up what this node held in the round before, its worker store included, and any
	// Stop of it that nobody took. When the run id has ended it returns an [*EndedError]; other errors wrap
	// [ErrClosed], [ErrTimeout], [ErrConnection], [ErrState] or [ErrGracefulExit]; when ctx ends first they wrap
	// its cause.
	NextRendezvous(ctx context.Context, self Member) (*Round, error)
	// Stops receives a [Stop] when the workers of the round that runs must be stopped: something failed or went
	// elsewhere, a node came, the store is silent. It is sent at most once a round; only an earlier KillBy,
	// because the store fell silent while workers are already being stopped, makes another. The agent stops
	// them and calls NextRendezvous. Sending never waits for the agent, and a Stop that was not received gives way to the
	// next one. One whose Round is not the agent's is to be ignored: a handler may send them to see that the agent receives.
	// The channel is never closed; it may be nil where no other node has a say.
	Stops() <-chan Stop
	// Stopped tells that no worker of this node is left in the round that runs. It does not block. NextRendezvous implies it;
	// the time between the two is the agent's own, and no longer bounded by a KillBy.
	Stopped()
	// Fail tells the others that a worker of the round that runs has failed, before its siblings are stopped. It does
	// not block. The agent then stops its workers and calls NextRendezvous with Member.Failure set, which holds where
	// the two differ.
	Fail(f Failure)
	// Succeed tells that all workers of this node exited with 0, and blocks until every node's have (nil, nil), or the
	// round must be run again: then it returns the Stop, and the agent calls NextRendezvous. Its errors are those of
	// NextRendezvous; an [*EndedError] says that the job has ended otherwise.
	Succeed(ctx context.Context) (*Stop, error)
	// Leave tells that this node will go, before its workers are signalled: what fails because of it is nobody's
	// fault. It does not block, and may be called at any time, also twice.
	Leave()
	// IsClosed reports whether the run id was closed. Closing spreads
	// eventually; it synchronizes nothing.
	IsClosed(ctx context.Context) (bool, error)
	// SetClosed closes the run id for all nodes.
	SetClosed(ctx context.Context) error
	// NumNodesWaiting returns how many nodes arrived too late for the round
	// that is running and would be in the next one.
	NumNodesWaiting() int
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
	// Failure is the likeliest cause among this node's own failures in the round that ended; nil for none.
	Failure *Failure
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
	// Restarts counts the restarts of the whole job that were charged so far.
	Restarts int
	// Over is closed before the first Stop of the round is sent: from then on no worker of it may be started, not even by an
	// agent that is in the middle of that and has not received the Stop. Nil where no other node has a say.
	Over <-chan struct{}
	// MasterAddr and MasterPort are where the workers find their store.
	MasterAddr string
	MasterPort int
	// UseAgentStore says that the worker store is hosted by an agent and
	// listens already; false leaves the hosting to the worker of rank 0.
	UseAgentStore bool
}
