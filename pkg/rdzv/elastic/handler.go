package elastic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/goodput"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// Handler is an rdzv.Handler for elastic jobs.
//
// Three kinds of goroutine use a Handler. The driving goroutine (drive) owns the member and all that it decides. The
// agent's goroutine calls NextRendezvous and Succeed. Any goroutine may call the other methods, which pass their work
// to the driving goroutine.
type Handler struct {
	opts         Options
	log          zerolog.Logger
	calls        chan func(now time.Duration)
	runOrders    chan runOrder  // holds the last order to start a round
	tasks        sync.WaitGroup // what joinStore has started
	joiningStore atomic.Bool    // joinStore is under way
	joins        chan struct{}  // holds an order to help to keep the store, while this node waits
	looks        chan lookOrder // holds the last order to look at the job's workers
	reenter      chan struct{}  // the agent has to enter again, with a new offer
	// stackRequests are the calls of AskStacks, which a task of the driver makes.
	stackRequests chan func(session context.Context, d *driver)
	driveDone     chan struct{} // closed when drive has returned
	endKnown      chan struct{} // closed when this agent has learned how the job ended, even if its workers still stop

	opening sync.Mutex // held while the first session is opened

	mu       sync.Mutex
	abort    context.CancelFunc      // ends the opening of the first session; nil while it is not being opened
	started  bool                    // drive has been started
	cancel   context.CancelCauseFunc // ends drive; nil before it has been started
	early    earlyCalls
	over     *rounds.Ending // why no further round will start; set before driveDone is closed
	outcome  *rounds.Ending // how the job has ended; set before endKnown is closed
	isClosed bool           // Shutdown was called
	store    *workerStore   // of the current round, if this node hosts it
	// storeStays says that no agent hosts the store of the newest round. The rendezvous outlives each node then.
	storeStays bool

	// Owned by the driving goroutine.
	stops rounds.StopMailbox // others may receive from it

	waiting waitingNodes

	// storeSurvives says that the store survives the loss of any one node, and storeHasHeir that another agent can take
	// over from its only voter. Both belong to the goroutine that watches where the store is.
	storeSurvives, storeHasHeir bool

	// Owned by the goroutine that calls NextRendezvous. The member belongs to the driving goroutine once it has
	// started.
	m      *rounds.Member
	rounds int // number of rounds entered

	// Owned by the agent's goroutine, which calls NextRendezvous and Succeed in turn.
	current    int       // the current round
	finishedAt time.Time // when the first Succeed of the round was called; zero before
	storeEnds  bool      // Place.StoreEndsWithRun of the current round
}

// runOrder asks the agent to run a round. over is closed when the agent must not start further workers of the round.
type runOrder struct {
	answer rounds.Answer
	over   chan struct{}
}

// New returns a handler. It opens nothing before the first NextRendezvous.
func New(o Options) *Handler {
	return &Handler{
		opts: o, log: o.Logger, calls: make(chan func(time.Duration)), stops: rounds.NewStopMailbox(),
		runOrders: make(chan runOrder, 1), joins: make(chan struct{}, 1), reenter: make(chan struct{}, 1),
		looks:         make(chan lookOrder, 1),
		stackRequests: make(chan func(context.Context, *driver)),
		driveDone:     make(chan struct{}), endKnown: make(chan struct{}), waiting: waitingNodes{asked: make(chan struct{})},
	}
}

// Backend implements rdzv.Handler.
func (h *Handler) Backend() string { return h.opts.Backend }

// RunID implements rdzv.Handler.
func (h *Handler) RunID() string { return h.opts.RunID }

// Stops implements rdzv.Handler.
func (h *Handler) Stops() <-chan rdzv.Stop { return h.stops.C }

// NextRendezvous implements rdzv.Handler.
func (h *Handler) NextRendezvous(ctx context.Context, self rdzv.Member) (*rdzv.Round, error) {
	round, err := h.next(ctx, self)
	if late, ok := errors.AsType[*rounds.FinishedError](err); ok {
		return nil, &rounds.FinishedError{RunID: h.opts.RunID, Ending: late.Ending, Late: late.Late}
	}
	switch {
	case err == nil, errors.As(err, new(*rdzv.EndedError)):
	case h.rounds > 0 && errors.As(err, new(*storeLostError)):
		err = fmt.Errorf("run %q: %w", h.opts.RunID, err)
	default:
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
		if !self.Preempted {
			h.closeStoreAndWarn("cannot close the worker store of the previous round")
		}
		if err := h.start(ctx); err != nil {
			return nil, err
		}
		var offer rounds.Offer
		var err error
		if !self.Preempted { // else workers of other nodes, which save, may use the store of the last round
			offer, err = h.offer(ctx, self)
		}
		switch {
		case err != nil && h.rounds > 0: // the address was valid before, so the input is not at fault
			return nil, fmt.Errorf("%w: %s", rdzv.ErrConnection, err.Error())
		case err != nil:
			return nil, err
		}
		if early := h.takeEarlyFailure(); self.Failure == nil {
			self.Failure = early
		}
		node := h.opts.Node
		node.Role, node.Nproc = self.Role, self.LocalWorldSize
		if err := h.awaitGuard(ctx); err != nil {
			return nil, err
		}
		h.call(func(now time.Duration) {
			h.discardOrders()
			h.m.RecordSteps(stepTimesOf(now, self.Steps))
			h.m.Enter(now, node, offer, self)
		})
		o, again, err := h.awaitOrder(ctx)
		switch {
		case err != nil:
			return nil, err
		case again:
			continue
		}
		h.rounds++
		if a := o.answer; a.Note != "" {
			h.log.Warn().Int("round", a.Fence.Round).Msg(a.Note)
		}
		if round, err := h.enterRound(ctx, o); !errors.Is(err, errRoundOver) {
			return round, err
		}
		// self describes the round before. In the round that has just ended this node started no worker.
		self.Failure, self.Steps = nil, rdzv.Steps{}
		self.Finished, self.Stop, self.ExcludeNode = false, false, false
	}
}

// awaitOrder waits for the order to start a round. again says that this node has to enter once more before that.
func (h *Handler) awaitOrder(ctx context.Context) (o runOrder, again bool, err error) {
	for {
		select {
		case o := <-h.runOrders:
			return o, false, nil
		case <-h.joins:
			h.joinStore(ctx)
		case <-h.reenter:
			return runOrder{}, true, nil
		case <-h.driveDone:
			return runOrder{}, false, h.ending()
		case <-ctx.Done():
			return runOrder{}, false, context.Cause(ctx)
		}
	}
}

// discardOrders discards the orders for the previous round.
func (h *Handler) discardOrders() {
	for {
		select {
		case <-h.stops.C:
		case <-h.reenter:
		case <-h.runOrders:
		default:
			return
		}
	}
}

// awaitGuard calls Options.AwaitGuard.
func (h *Handler) awaitGuard(ctx context.Context) error {
	if h.opts.AwaitGuard == nil {
		return nil
	}
	return h.opts.AwaitGuard(ctx)
}

// notifySession calls Options.Session with a new session, or with nil after its end.
func (h *Handler) notifySession(store coord.Store) {
	if h.opts.Session != nil {
		h.opts.Session(store)
	}
}

// withinJoin bounds the wait for a session by the join timeout.
func (h *Handler) withinJoin(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := h.opts.Job.JoinTimeout
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf(
		"no rendezvous within %s; --rdzv-conf=join_timeout=SECONDS (or timeout=SECONDS) allows more", seconds.Format(limit)))
}

// Stopped implements rdzv.Handler.
func (h *Handler) Stopped() {
	h.call(func(time.Duration) { h.m.Stopped() })
}

// enterRound returns the round that the leader has decided, once its worker store is reachable.
func (h *Handler) enterRound(ctx context.Context, o runOrder) (*rdzv.Round, error) {
	a := o.answer
	p := a.Place
	r := &rdzv.Round{
		Number: a.Fence.Round, Rank: p.Rank, WorldSize: p.Nodes, Assignment: p.Assignment, Restarts: p.Restarts,
		LostNodes: p.Lost, SameFailures: p.Same, Used: (*goodput.Goodput)(p.Used),
		MasterPort: p.Store.Port, UseAgentStore: !p.Store.WorkersHost, Over: o.over,
	}
	if len(p.Store.Addrs) == 0 {
		return nil, fmt.Errorf("%w: the node of rank 0 offers no worker store", rdzv.ErrState)
	}
	r.MasterAddr, h.current, h.finishedAt = p.Store.Addrs[0], r.Number, time.Time{}
	h.storeEnds = p.StoreEndsWithRun && p.Nodes > 1
	if p.JoinStore {
		h.joinStore(ctx)
	}
	h.mu.Lock()
	h.storeStays = !p.StoreEndsWithRun
	h.mu.Unlock()
	if p.Rank == 0 {
		return r, nil
	}
	h.closeStoreAndWarn("cannot close this node's worker store")
	if p.Store.Nonce == "" {
		return r, nil
	}
	var err error
	r.MasterAddr, err = h.findWorkerStore(ctx, r.Number, p.Store)
	return r, err
}

// errRoundOver says that a round ended before this node had entered it.
var errRoundOver = errors.New("the round is over")

// findWorkerStore returns the address at which this node reaches the round's worker store. If no address answers, the
// store's node may have just died, or the two nodes may be cut off from each other. The leader learns of it and ends
// the round. This node leaves only if that takes very long.
func (h *Handler) findWorkerStore(ctx context.Context, round int, store rounds.Offer) (string, error) {
	began := time.Now()
	warnings, warnAt := 0, began
	for until := began.Add(h.opts.Job.Rejoin + h.opts.Job.JoinTimeout); ; {
		addr, err := reach(ctx, store)
		switch {
		case err == nil:
			h.call(func(time.Duration) { h.m.StoreReached() })
			return addr, nil
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case time.Now().After(until):
			h.Leave()
			return "", fmt.Errorf("%w: the worker store of round %d: %w", rdzv.ErrConnection, round, err)
		}
		h.call(func(time.Duration) { h.m.StoreUnreached(time.Since(began), err.Error()) })
		if now := time.Now(); !now.Before(warnAt) {
			h.log.Warn().Err(err).Int("round", round).Msg("cannot reach the worker store yet; retrying")
			warnAt = now.Add(rounds.NoticePause(warnings, rounds.MaxNoticePause))
			warnings++
		}
		select {
		case s := <-h.stops.C:
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

// offer opens the worker store that this node hosts if it becomes rank 0 of the next round.
func (h *Handler) offer(ctx context.Context, self rdzv.Member) (rounds.Offer, error) {
	s, offer, err := h.opts.Stores.open(ctx, self, h.opts.Access.Front(), h.log)
	if err != nil {
		return rounds.Offer{}, err
	}
	h.mu.Lock()
	if !h.isClosed {
		h.store, s = s, nil
	}
	h.mu.Unlock()
	return offer, s.close() // after Shutdown nobody else closes it
}

// closeStore closes this node's worker store, if it is open.
func (h *Handler) closeStore() error {
	h.mu.Lock()
	s := h.store
	h.store = nil
	h.mu.Unlock()
	return s.close()
}

// closeStoreAndWarn is closeStore for a caller that goes on after an error.
func (h *Handler) closeStoreAndWarn(message string) {
	if err := h.closeStore(); err != nil {
		h.log.Warn().Err(err).Msg(message)
	}
}
