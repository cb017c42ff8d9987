package rdzv

import (
	"context"
	"math"
	"time"

	"github.com/elasticrun/elasticrun/pkg/goodput"
)

// NoTimeout makes [Handler.Succeed] wait without limit.
const NoTimeout time.Duration = math.MaxInt64

// Handler is one node's part in the rendezvous of one run id, like torch's RendezvousHandler. All handlers of a run
// return the same decisions: which nodes make up a round, whether a failure costs a restart, and when the job has
// ended. The agent only reports what its workers do. A round lasts from one call of NextRendezvous to the next.
type Handler interface {
	// Backend returns the name under which the handler's creator is registered.
	Backend() string
	// RunID identifies the job among all that share the backend.
	RunID() string
	// NextRendezvous reports that every worker of this node has ended, and blocks until a round with this node is decided.
	// It first releases what this node held in the last round, such as its worker store, and discards a Stop of that round
	// that the agent has not received. With self.Preempted the worker store stays until the job has ended or Shutdown is
	// called. If the run id has ended it returns an [*EndedError]. Any other error wraps exactly one kind of
	// [ErrRendezvous], or is the cause of ctx, or says that self is not valid.
	NextRendezvous(ctx context.Context, self Member) (*Round, error)
	// Stops receives a [Stop] when the workers of the current round must be stopped: for example because a worker
	// failed, a node left or joined, or the store does not answer. The agent stops the workers and calls
	// NextRendezvous.
	//
	// A round has at most one Stop, and another one only to move KillBy to an earlier time, when the store falls silent
	// while the workers are being stopped. A new Stop replaces one that the agent has not received, so sending never
	// blocks. The agent ignores a Stop of another round; a handler may send one to check that the agent still receives.
	//
	// The channel is never closed. It may be nil if no other node can end a round, which is never so in package elastic.
	Stops() <-chan Stop
	// Quiet reports that no worker of this node has shown a sign of life for long, or with nil that one has again. It does
	// not block. A Quiet replaces the one before.
	Quiet(q *Quiet)
	// Started reports that the workers of the current round have been started. It does not block.
	Started()
	// Stepped reports the steps of the current round so far: soon after the first one, then from time to time. Each report
	// replaces the one before, and Member.Steps replaces the last. Stepped does not block.
	Stepped(s Steps)
	// Used returns how all workers of the job have used their time; nil if nothing is known. If final is true, the job has
	// ended and the result is the same on all nodes. Until then the result is what this node knows.
	Used() (used *goodput.Goodput, final bool)
	// Stopped reports that every worker of this node in the current round has ended. It does not block. NextRendezvous
	// implies it. Between the two calls no KillBy applies.
	Stopped()
	// Fail reports to the other nodes that a worker of the current round has failed, before the agent stops the other
	// workers. It does not block. The agent then stops its workers and calls NextRendezvous with Member.Failure, which
	// replaces f.
	Fail(f Failure)
	// Succeed reports that all workers of this node have exited with 0. It returns nil, nil when the workers of every node
	// have exited with 0. If the round must be run again it returns the Stop, and the agent calls NextRendezvous. Its
	// errors are those of NextRendezvous; an [*EndedError] says that the job has ended otherwise. Any other error says
	// nothing about the job, so the agent ends with success.
	//
	// barrier is how long this node waits for the others at torch's exit barrier: 0 for not at all, [NoTimeout] without
	// limit. After that the handler takes this node out of the round, waits only briefly for the confirmation, and returns
	// an [ErrTimeout]: this node's success stands, whatever becomes of the others. If this node has to stay, Succeed
	// returns a [*NeededError] instead and may be called again. If ctx ends, Succeed returns its cause at once.
	Succeed(ctx context.Context, barrier time.Duration) (*Stop, error)
	// Preempt asks for the preemption of the whole job. It does not block. The first request of any node counts. A Stop
	// with a Preemption follows if workers run, and NextRendezvous ends with [EndPreempted], or [EndSucceeded] if all
	// workers had finished. A request before the first NextRendezvous counts, too.
	Preempt(p Preemption)
	// Leave reports that this node is about to leave, before the agent signals its workers: failures that follow from
	// it are not charged. It does not block. It may be called at any time and more than once.
	Leave()
	// IsClosed reports whether this node knows that the run id is closed: no further round will form. The other nodes
	// learn of a close some time later.
	IsClosed(ctx context.Context) (bool, error)
	// SetClosed closes the run id for all nodes, whose workers are stopped. by says for people who asks, such as
	// user@host, and becomes [Outcome].ClosedBy; empty stands for this node. It returns nil once the close is certain, and
	// if the run id was closed already; workers may still be stopping. An error says that the run id may not be closed.
	SetClosed(ctx context.Context, by string) error
	// NumNodesWaiting returns how many nodes arrived too late for the current round and would be in the next one.
	NumNodesWaiting() int
	// Shutdown releases everything that the handler holds: connections, listeners and the worker store. It may be
	// called more than once.
	Shutdown(ctx context.Context) error
}

// Member describes a node that enters a round.
type Member struct {
	// Role of the node's workers.
	Role string
	// LocalWorldSize is the number of workers on the node, at least 1. It may differ between nodes.
	LocalWorldSize int
	// MasterAddr and MasterPort are the worker store's address if it is configured, as in torch's WorkerSpec. Empty and
	// 0 let the backend choose.
	MasterAddr string
	MasterPort int
	// Failure is the likeliest cause among this node's own failures in the last round, or nil.
	Failure *Failure
	// Preempted says that a preemption has ended the last round, so that none follows. Workers of other nodes may still
	// save, and need the worker store of that round.
	Preempted bool
	// Finished says that the workers of this node had done all their work in the last round when it was stopped. Stop says
	// that a worker thinks that no restart helps, and ExcludeNode that the node is at fault.
	Finished, Stop, ExcludeNode bool
	// Steps are the steps that workers of this node have shown in the last round.
	Steps Steps
}

// MaxSteps is the most Marks of a [Steps].
const MaxSteps = 32

// Steps are training steps that the workers of a node have shown in a round. The zero value has none.
type Steps struct {
	// Marks are some of the steps, in order of time: the first, the last, and not more than MaxSteps in all.
	Marks []StepMark
	// Gap is the smallest difference of two steps in a row that a worker has shown; 0 if it is not known.
	Gap int64
	// Fell says that the steps of a worker have gone down, so that they do not count all of its work.
	Fell bool
}

// StepMark says when a step was done. At has a monotonic clock reading.
type StepMark struct {
	Step int64
	At   time.Time
}

// Round is a decided round as one of its nodes sees it.
type Round struct {
	// Number counts the rounds of the run id from 0. Restarts and membership changes both start a new round.
	Number int
	// Rank is this node's group rank, in [0, WorldSize).
	Rank int
	// WorldSize is the number of nodes.
	WorldSize int
	// Assignment has the ranks of this node's workers.
	Assignment Assignment
	// Restarts counts the restarts of the whole job charged so far.
	Restarts int
	// LostNodes is how many nodes of the round before were lost. SameFailures is how many times in a row the failure that
	// ended that round has happened; 0 if it did not fail.
	LostNodes, SameFailures int
	// Used is how the time before this round was used by all workers of the job, the same on all nodes; nil in its first
	// round.
	Used *goodput.Goodput
	// Over is closed before the first Stop of the round is sent. From then on no worker of the round may be started,
	// not even by an agent that has not received the Stop yet. It is nil if no other node can end a round.
	Over <-chan struct{}
	// MasterAddr and MasterPort are the address of the workers' store.
	MasterAddr string
	MasterPort int
	// UseAgentStore says that an agent hosts the workers' store, which already listens. If it is false, the worker of
	// rank 0 hosts the store.
	UseAgentStore bool
}
