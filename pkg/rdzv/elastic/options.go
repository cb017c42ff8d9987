package elastic

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// Access opens sessions in the store of a run.
type Access interface {
	// Open returns a new session for the agent. It keeps trying until ctx ends, except after an error that another attempt
	// cannot overcome. The first call also makes this process the store's host, or a candidate for the leader, if that is
	// its role.
	Open(ctx context.Context) (coord.Store, error)
	// Front returns the worker store through whose listener this process serves agents and, with the static backend,
	// workers too. It is nil if this process hosts no store.
	Front() *rdzv.WorkerStore
	// Close ends what Open has started, except the sessions. A process that hosts the store first waits until the other
	// agents have learned of the job's end, or ctx has ended. over says that this agent knows how the job has ended.
	Close(ctx context.Context, over bool) error
}

// DefaultCloseTimeout is the close timeout of a zero Options.CloseTimeout.
const DefaultCloseTimeout = 30 * time.Second

// Options are the options of New.
type Options struct {
	Backend string
	RunID   string
	Job     rounds.Job
	Node    rounds.Node // without Role and Nproc, which come from the Member
	Access  Access
	Stores  WorkerStores
	// KeepAlive, above 0 and well below the TTL of sessions, is the time between keep-alives. Timeout, above 0, bounds
	// each request to the store.
	KeepAlive time.Duration
	Timeout   time.Duration
	// AwaitGuard, if not nil, is called before this node reports that it is ready for a round. It returns once the
	// guard allows workers to start.
	AwaitGuard func(ctx context.Context) error
	// Session, if not nil, is called with each session that Access has opened, before it is used, again with the same
	// session when the store's addresses have changed, and with nil when the agent has ended the session.
	Session func(coord.Store)
	// Watchdog, if not nil, is called with the time, on the clock of package boottime, by which the workers must be
	// dead unless a later call moves it. Others may consider this agent lost then, and an agent that is paused cannot
	// kill its workers itself. 0 means no deadline.
	Watchdog func(at time.Duration)
	// Status, if not nil, returns what the agent is doing, for those who observe the run: any text, best below 64 KiB.
	// It is called only while somebody observes, by one goroutine at a time, and must return when ctx ends.
	Status func(ctx context.Context) []byte
	// Stacks, if not nil, returns what the workers of this node are doing, for those who ask for it: any text, best below
	// 1 MiB. It is called once for each who asks, and must return when ctx ends. Two goroutines may call it at a time.
	// Observers get stacks only if Status is set too.
	Stacks func(ctx context.Context, r rounds.StacksRequest) []byte
	// Examine, if not nil, judges what the nodes of a round have replied when the leader suspected a hang and asked this
	// agent to look. It needs Stacks. One goroutine at a time calls it. The caller sets the Look of the result.
	Examine func(ctx context.Context, round int, nodes []rounds.NodeStacks) rounds.HangFinding
	// HangFound, if not nil, is called with a hang that another agent has found, and with nil when a worker of this node
	// makes progress again after any hang. It must not block.
	HangFound func(*rounds.HangFound)
	// StatusInterval is the time between two calls of Status. It is above 0.
	StatusInterval time.Duration
	// Waiting, if not nil, is called with what this node waits for, in words for people: a store that it has not reached,
	// other nodes. It is empty once that is not known any more. Waiting must not block; one goroutine at a time calls it.
	Waiting func(why string)
	// StoreChanged, if not nil, is called with who keeps the store, if the agents keep it together, and after each change
	// that this agent learns of. It must not block; one goroutine at a time calls it.
	StoreChanged func(*StoreState)
	// LeaveStores lets this node leave the exit barrier, after the TTL of sessions at the least, even if it hosts a store
	// that other nodes need. They fail then. Otherwise it stays until the job has ended.
	LeaveStores bool
	// CloseTimeout is how long this node waits for the leader's answer when it leaves the exit barrier or closes the run.
	// 0 is DefaultCloseTimeout.
	CloseTimeout time.Duration
	// SharedRunID says that other jobs may have the same run id. Another store that replaces this job's may then be
	// theirs, so the agent ends instead of joining it.
	SharedRunID bool
	// WaitAdvice is appended to the warnings that nodes are missing in the first round. It may be empty.
	WaitAdvice string
	// Advice is appended to the error for a lost store, or StoreAdvice if this node was in a round of a store that no
	// agent hosts. They say how to avoid the loss, and may be empty.
	Advice, StoreAdvice string
	Logger              zerolog.Logger
}
