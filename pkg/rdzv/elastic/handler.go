package elastic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/boottime"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Access is how a handler gets at the store of its run.
type Access interface {
	// Open returns a new session, for the agent. It keeps trying until ctx ends. The first time it also makes this process the store's
	// host or a candidate for the leader, where that is its part.
	Open(ctx context.Context) (coord.Store, error)
	// Front is where this process serves the agents and, with static, the workers too; nil where it does neither.
	Front() *rdzv.WorkerStore
	// Close ends what Open has begun beside the sessions, after the others have heard of the job's end, or ctx has ended.
	Close(ctx context.Context) error
}

// Options are what a Handler is made of.
type Options struct {
	Backend string
	RunID   string
	Job     Job
	Node    Node // Role and Nproc come from the Member
	Access  Access
	Stores  WorkerStores
	// KeepAlive is the time between keep-alives, Patience how long one answer of the store may take.
	KeepAlive time.Duration
	Timeout   time.Duration
	// AwaitGuard is called before this node says that it is ready for a round: it returns once the guard lets workers be started. Nil is not called.
	AwaitGuard func(ctx context.Context) error
	// Session is called with each session that is opened, before it is used, and with nil when the agent has ended it. The store
	// is one that Access has opened. Nil is not called.
	Session func(coord.Store)
	// DeadMan is told until when, on the clock of package boottime, the workers may live unless it is told anew, because by then others may take
	// this agent for lost: an agent that is paused cannot kill them itself. 0 is for as long as they like. Nil is not told.
	Watchdog func(at time.Duration)
	// Status returns what the agent is doing, for whoever looks at the run: any text, best below 64 KiB. It is called only while somebody does, by
	// one goroutine at a time, and is to end when ctx does. Nil: the agent shows nothing.
	Status func(ctx context.Context) []byte
	// StatusInterval is how often it is called meanwhile, above 0.
	StatusInterval time.Duration
	// SharedRunID says that other jobs may have the same run id: where another store has replaced the one of this job, it may be theirs, and the
	// agent ends in place of joining it.
	SharedRunID bool
	// Advice is said when the store is lost: how to avoid that; may be empty.
	Advice string
	Logger zerolog.Logger
}

// Handler is one agent's part in an elastic rendezvous; see package rdzv for its contract.
type Handler struct {
	opts      Options
	log       zerolog.Logger
	calls     chan func(now time.Duration)
	stops     chan rdzv.Stop // holds the last one, as long as the agent has not received it
	runOrders chan runOrder  // the last order to run
	reenter   chan struct{}  // the offer is to be made anew
	cancel    context.CancelCauseFunc
	driveDone chan struct{} // closed when the driving has ended; nil before the first rendezvous

	mu     sync.Mutex
	over   *ending // why there will be no further round; set before driven is closed
	closed bool

	// Of the driving goroutine.
	roundOver  chan struct{} // rdzv.Round's Over; nil once it is closed
	probeState probeState

	// Of the goroutine that calls NextRendezvous.
	m      *member
	store  *workerStore
	rounds int // that it was in

	current int // round; Succeed reads it, too, which is called in between
}

// New makes a handler. Nothing is opened before the first NextRendezvous.
func New(o Options) *Handler {
	return &Handler{
		opts: o, log: o.Logger, calls: make(chan func(time.Duration)), stops: make(chan rdzv.Stop, 1),
		runOrders: make(chan runOrder, 1), reenter: make(chan struct{}, 1),
	}
}

// Backend implements rdzv.Handler.
func (h *Handler) Backend() string { return h.opts.Backend }

// RunID implements rdzv.Handler.
func (h *Handler) RunID() string { return h.opts.RunID }

// Stops implements rdzv.Handler.
func (h *Handler) Stops() <-chan rdzv.Stop { return h.stops }

// NumNodesWaiting implements rdzv.Handler. Nodes wait at the leader, which ends the round for their sake itself.
func (h *Handler) NumNodesWaiting() int { return 0 }

// NextRendezvous implements rdzv.Handler.
func (h *Handler) NextRendezvous(ctx context.Context, self rdzv.Member) (*rdzv.Round, error) {
	round, err := h.next(ctx, self)
	if late, ok := errors.AsType[*FinishedError](err); ok {
		return nil, &FinishedError{RunID: h.opts.RunID, Ending: late.Ending, Late: late.Late}
	}
	if err != nil && !errors.As(err, new(*rdzv.EndedError)) {
		err = fmt.Errorf("join rendezvous %q: %w", h.opts.RunID, err)
	}
	return round, err
}

func (h *Handler) next(ctx context.Context, self rdzv.Member) (*rdzv.Round, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if self.LocalWorldSize < 1 {
		return nil, fmt.Errorf("local world size %d: must be at least 1", self.LocalWorldSize)
	}
	for {
		if err := h.closeStore(); err != nil {
			h.log.Warn().Err(err).Msg("closing the worker store of the round before")
		}
		if err := h.start(ctx); err != nil {
			return nil, err
		}
		offer, err := h.offer(ctx, self)
		switch {
		case err != nil && h.rounds > 0: // the address was right before: that it was lost meanwhile is nobody's bad input
			return nil, fmt.Errorf("%w: %s", rdzv.ErrConnection, err.Error())
		case err != nil:
			return nil, err
		}
		node := h.opts.Node
		node.Role, node.Nproc = self.Role, self.LocalWorldSize
		if err := h.awaitGuard(ctx); err != nil {
			return nil, err
		}
		h.call(func(now time.Duration) {
			h.discardOrders()
			h.m.enter(now, node, offer, self.Failure)
		})
		select {
		case o := <-h.runOrders:
			h.rounds++
			if a := o.answer; a.Note != "" {
				h.log.Warn().Int("round", a.Fence.Round).Msg(a.Note)
			}
			if round, err := h.enterRound(ctx, o); !errors.Is(err, errRoundOver) {
				return round, err
			}
		case <-h.reenter:
		case <-h.driveDone:
			return nil, h.ending()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// drain forgets what was ordered for the round before.
func (h *Handler) discardOrders() {
	for {
		select {
		case <-h.stops:
		case <-h.reenter:
		case <-h.runOrders:
		default:
			return
		}
	}
}

// begin starts the driving, the first time.
func (h *Handler) start(ctx context.Context) error {
	if h.isClosed() {
		return rdzv.ErrClosed
	}
	if h.driveDone != nil {
		return nil
	}
	bounded, cancel := h.withinJoin(ctx)
	defer cancel()
	origin := boottime.Now()
	store, err := h.opts.Access.Open(bounded)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return connectionError(err)
	}
	h.m = newMember(memberOptions{node: h.opts.Node, job: h.opts.Job, ttl: store.TTL()}, firstProof(store, origin))
	h.notifySession(store)
	h.driveDone = make(chan struct{})
	driving, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	h.cancel = stop
	go h.drive(driving, store, origin)
	return nil
}

func (h *Handler) awaitGuard(ctx context.Context) error {
	if h.opts.AwaitGuard == nil {
		return nil
	}
	return h.opts.AwaitGuard(ctx)
}

// opened tells of a session, or with nil of its end.
func (h *Handler) notifySession(store coord.Store) {
	if h.opts.Session != nil {
		h.opts.Session(store)
	}
}

// call makes a call in the driving goroutine, unless that has ended.
func (h *Handler) call(f func(now time.Duration)) {
	if h.driveDone == nil {
		return
	}
	select {
	case h.calls <- f:
	case <-h.driveDone:
	}
}

// withinJoin bounds the wait for a session.
func (h *Handler) withinJoin(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := h.opts.Job.JoinTimeout
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("no rendezvous in %v, which is the join_timeout", limit))
}

// Fail implements rdzv.Handler.
func (h *Handler) Fail(f rdzv.Failure) {
	h.call(func(now time.Duration) { h.m.fail(now, f) })
}

// Stopped implements rdzv.Handler.
func (h *Handler) Stopped() {
	h.call(func(time.Duration) { h.m.stopped() })
}

// Leave implements rdzv.Handler.
func (h *Handler) Leave() {
	h.call(func(time.Duration) { h.m.leave() })
}

// Succeed implements rdzv.Handler.
func (h *Handler) Succeed(ctx context.Context) (*rdzv.Stop, error) {
	h.call(func(now time.Duration) { h.m.succeed(now) })
	for over := false; !over; {
		select {
		case s := <-h.stops:
			if s.Round == h.current && !h.ended() {
				return &s, nil
			}
		case <-h.driveDone:
			over = true
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	err := h.ending()
	var end *rdzv.EndedError
	if errors.As(err, &end) && end.Outcome.Ending == rdzv.EndSucceeded {
		return nil, nil
	}
	return nil, err
}

// round makes the round that the leader has decided.
func (h *Handler) enterRound(ctx context.Context, o runOrder) (*rdzv.Round, error) {
	a := o.answer
	p := a.Place
	r := &rdzv.Round{
		Number: a.Fence.Round, Rank: p.Rank, WorldSize: p.Nodes, Assignment: p.Assignment, Restarts: p.Restarts,
		MasterPort: p.Store.Port, UseAgentStore: !p.Store.WorkersHost, Over: o.over,
	}
	if len(p.Store.Addrs) == 0 {
		return nil, fmt.Errorf("%w: node of rank 0 offers no worker store", rdzv.ErrState)
	}
	r.MasterAddr, h.current = p.Store.Addrs[0], r.Number
	if p.Rank == 0 {
		return r, nil
	}
	if err := h.closeStore(); err != nil {
		h.log.Warn().Err(err).Msg("closing the worker store")
	}
	if p.Store.Nonce == "" {
		return r, nil
	}
	var err error
	r.MasterAddr, err = h.findWorkerStore(ctx, r.Number, p.Store)
	return r, err
}

// errRoundOver says that a round has ended before this node began it.
var errRoundOver = errors.New("the round is over")

// find returns the address at which the worker store of a round is reached. Where it is not reached, its node may have died a moment ago, or one of the
// two nodes is cut off from the other: the leader hears of it, and ends the round. Only when it has not for very long does this node leave.
func (h *Handler) findWorkerStore(ctx context.Context, round int, store Offer) (string, error) {
	began := time.Now()
	for until := began.Add(h.opts.Job.Rejoin + h.opts.Job.JoinTimeout); ; {
		addr, err := reach(ctx, store)
		switch {
		case err == nil:
			h.call(func(time.Duration) { h.m.storeReached() })
			return addr, nil
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case time.Now().After(until):
			h.Leave()
			return "", fmt.Errorf("%w: the worker store of round %d: %w", rdzv.ErrConnection, round, err)
		}
		h.call(func(time.Duration) { h.m.storeUnreached(time.Since(began), err.Error()) })
		h.log.Warn().Err(err).Int("round", round).Msg("the worker store is not reached yet; trying on")
		select {
		case s := <-h.stops:
			if s.Round == round {
				return "", errRoundOver
			}
		case <-h.driveDone:
			return "", errRoundOver
		case <-time.After(time.Second):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// offer opens the worker store that this node would have in the next round.
func (h *Handler) offer(ctx context.Context, self rdzv.Member) (Offer, error) {
	s, offer, err := h.opts.Stores.open(ctx, self, h.opts.Access.Front(), h.log)
	if err != nil {
		return Offer{}, err
	}
	h.store = s
	return offer, nil
}

func (h *Handler) closeStore() error {
	if h.store == nil {
		return nil
	}
	s := h.store
	h.store = nil
	return s.close()
}

func (h *Handler) isClosed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

// IsClosed implements rdzv.Handler.
func (h *Handler) IsClosed(context.Context) (bool, error) { return h.isClosed() || h.ended(), nil }

// SetClosed implements rdzv.Handler: no further round will be decided, and the one that runs is stopped.
func (h *Handler) SetClosed(ctx context.Context) error {
	if h.driveDone == nil {
		h.mu.Lock()
		h.closed = true
		h.mu.Unlock()
		return nil
	}
	h.call(func(time.Duration) { h.m.close() })
	select {
	case <-h.driveDone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close rendezvous %q: %w", h.opts.RunID, context.Cause(ctx))
	}
}

// Shutdown implements rdzv.Handler. Where this process hosts the run's store, it waits until the others have heard of the end.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	if h.driveDone != nil {
		h.cancel(errFinished)
		<-h.driveDone
	}
	return errors.Join(h.opts.Access.Close(ctx), h.closeStore())
}
