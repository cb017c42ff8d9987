package elastic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/boottime"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// connectionError makes err an rdzv.ErrConnection, unless it belongs to the family already.
func connectionError(err error) error {
	if errors.Is(err, rdzv.ErrRendezvous) {
		return err
	}
	return fmt.Errorf("%w: %w", rdzv.ErrConnection, err)
}

// storeLostError says that an agent has lost its store for good.
type storeLostError struct {
	workers bool // it had workers, which were stopped because of that
	err     error
}

func (e *storeLostError) Error() string {
	if e.workers {
		return "this node's workers were stopped, because " + e.err.Error()
	}
	return e.err.Error()
}

// Unwrap lets errors.Is find rdzv.ErrConnection.
func (e *storeLostError) Unwrap() []error { return []error{rdzv.ErrConnection, e.err} }

// drive drives the member through its sessions, one after the other.
func (h *Handler) drive(ctx context.Context, store coord.Store, origin time.Duration) {
	defer close(h.driveDone)
	for {
		d := &driver{
			store: store, prefix: rounds.PrefixOf(h.opts.RunID), timeout: h.opts.Timeout, log: h.log,
			waiting: &h.waiting, m: h.m, clock: boottime.Now, origin: origin, calls: h.calls, execute: h.execute,
			probe: func(now time.Duration) rounds.OptionalTime { return h.stops.ProbeAgent(now, h.m, h.log) },
			looks: h.looks, examine: h.opts.Examine, stackRequests: h.stackRequests,
			watchdog: h.opts.Watchdog, status: h.opts.Status, stacks: h.opts.Stacks, statusInterval: h.opts.StatusInterval,
		}
		if access, ok := h.opts.Access.(storeJoiner); ok && access.keptTogether() {
			if client, ok := store.(*coord.Client); ok {
				d.storeMoved = func(at rounds.StoreAddrs) { h.storeMoved(client, at) }
				d.proved = func(sent time.Duration) { access.recordProof(sent + origin) }
			}
		}
		if store.TTL() > 0 {
			d.interval = h.opts.KeepAlive
		}
		err := d.run(ctx)
		if ctx.Err() != nil { // a rerun may begin when the session has ended, and may want the worker store's port
			h.closeStoreAndWarn("cannot close this node's worker store")
		}
		h.endSession(ctx, d)
		switch {
		case ctx.Err() != nil || h.ended():
			return
		case h.previousStoreGone(err):
			h.log.Info().Msg("the store of the run before this one has ended: opening the rendezvous again")
			if store = h.rejoin(ctx, d); store == nil {
				return
			}
			h.m.SessionRenewed(firstProof(store, origin), store.TTL())
			continue
		case !h.mayRejoin(err):
			lost := &storeLostError{workers: h.m.HasWorkers(), err: err}
			h.m.StoreLost(d.now())
			h.m.GiveUp(lost)
			h.execute(h.m.TakeOrders())
			if h.serve(ctx, d, func() bool { return !h.m.HasWorkers() }) {
				h.finish(h.m.Ending())
			}
			return
		}
		switch {
		case errors.Is(err, errStoreSilent):
			h.log.Warn().Msg("no node that keeps the job's store answers: looking for the store anew")
		case errors.Is(err, coord.ErrReplaced) && h.m.Round() < 0:
			h.log.Info().Msg("another store of this run has taken the place of the one that this node found: joining again")
		case errors.Is(err, coord.ErrReplaced):
			h.log.Warn().Msg("the job's store has gone, and a new one without its data has taken its place: joining again, " +
				"once this node's workers are dead; elasticrun store --data-dir, apart from the nodes, or etcd keeps the data")
		default:
			h.log.Warn().Err(err).Msg("the rendezvous considers this node lost: joining again, once its workers are dead")
		}
		if store = h.rejoin(ctx, d); store == nil {
			return
		}
		if replaced(d.store, store) {
			h.m.StoreReplaced(d.now())
		}
		h.m.SessionRenewed(firstProof(store, origin), store.TTL())
	}
}

// mayRejoin reports whether the agent opens another session once its workers have ended: the store has ended the
// session, no node that keeps the store answers, or another store of the same run has replaced it.
func (h *Handler) mayRejoin(err error) bool {
	return errors.Is(err, coord.ErrSessionLost) || errors.Is(err, errStoreSilent) ||
		errors.Is(err, coord.ErrReplaced) && (!h.opts.SharedRunID || h.m.Round() < 0)
}

// forgetter is an Access that returns to the same store each time, until Forget makes it look for the store again.
type forgetter interface{ Forget() }

// previousStoreGone reports whether the store belonged to the run before and this agent was waiting for it to end. If
// so, the next Open looks for the store anew.
func (h *Handler) previousStoreGone(err error) bool {
	access, ok := h.opts.Access.(forgetter)
	if !ok || errors.Is(err, coord.ErrSessionLost) || !h.m.AwaitsRerun() {
		return false
	}
	access.Forget()
	return true
}

// identified is a store with an id that distinguishes it from another store at the same address.
type identified interface{ InstanceID() string }

// replaced reports whether the session now is in another store than the session before. That session may have been lost
// before its store was replaced.
func replaced(before, now coord.Store) bool {
	was, ok := before.(identified)
	is, both := now.(identified)
	return ok && both && was.InstanceID() != is.InstanceID()
}

// startTimer is a store that knows when its session began, at the latest, on the clock of package boottime.
type startTimer interface{ Began() time.Duration }

// firstProof returns when a new session was known to be alive. If that is unknown, the result lets no worker run before
// the first keep-alive has been answered.
func firstProof(store coord.Store, origin time.Duration) time.Duration {
	if s, ok := store.(startTimer); ok {
		return s.Began() - origin
	}
	return boottime.Now() - origin - rounds.StopTimeout(store.TTL())
}

// minPreemptedRejoin is how long an agent of a preempted job tries to join again, at least.
const minPreemptedRejoin = 5 * time.Second

// rejoin waits until every worker has ended and opens another session. It returns nil if it cannot.
func (h *Handler) rejoin(ctx context.Context, d *driver) coord.Store {
	h.m.SessionLost(d.now())
	d.setWatchdog()
	h.execute(h.m.TakeOrders())
	if !h.serve(ctx, d, h.m.IsIdle) {
		return nil
	}
	bounded, cancel := h.withinJoin(ctx)
	defer cancel()
	if h.m.Preemption() != nil { // no round follows: only the end of the job is left to learn
		var stop context.CancelFunc
		bounded, stop = context.WithTimeout(bounded, max(d.store.TTL(), minPreemptedRejoin))
		defer stop()
	}
	type opened struct {
		store coord.Store
		err   error
	}
	open := make(chan opened, 1)
	go func() {
		store, err := h.openStore(bounded)
		open <- opened{store, err}
	}()
	for {
		select {
		case call := <-h.calls:
			call(d.now())
			if h.m.IsDeparting() { // no leader can confirm it
				h.m.DepartUnconfirmed()
			}
			if h.m.IsLeaving() || h.m.Ending() != nil {
				cancel()
			}
			h.m.TakeOrders() // the orders belong to the round that has ended
		case o := <-open:
			if o.err != nil {
				h.finish(cmp.Or(h.m.Ending(), &rounds.Ending{Err: connectionError(o.err)}))
				return nil
			}
			h.notifySession(o.store)
			return o.store
		}
	}
}

// serve runs the agent's calls without a session until done returns true. It returns false if ctx ends before. The
// watchdog's deadline stays until the workers have ended. Then serve clears the deadline, since the watchdog would also
// kill the processes that the agent runs next, such as the preflight command.
func (h *Handler) serve(ctx context.Context, d *driver, done func() bool) bool {
	for {
		if !h.m.HasWorkers() {
			d.setWatchdog()
		}
		if done() {
			return true
		}
		select {
		case call := <-h.calls:
			call(d.now())
			h.execute(h.m.TakeOrders())
		case <-ctx.Done():
			return false
		}
	}
}

// endSession ends the session. A node that leaves reports that first, since otherwise it would count as lost. While
// workers may run, the session is not ended but left to expire, because its end proves that no worker is left. drive's
// ctx ends only once no worker is left.
func (h *Handler) endSession(ctx context.Context, d *driver) {
	timeout := h.opts.Timeout
	workers := ctx.Err() == nil && h.m.HasWorkers()
	if workers || h.m.IsSilent(d.now()) { // a silent store would not answer
		timeout = 0
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	var err error
	if h.m.IsLeaving() && d.store.Err() == nil {
		err = d.putReport(bounded, h.m.CurrentReport())
		if round, rank, nodes := h.m.LastPlace(); err == nil && h.m.MayDepart() && nodes > 1 {
			d.awaitSuccess(bounded, round, rank)
		}
	}
	if err = errors.Join(err, d.store.Close(bounded)); err != nil {
		h.log.Debug().Err(err).Msg("cannot end the session")
		return
	}
	h.notifySession(nil)
}

// execute passes orders on to the agent.
func (h *Handler) execute(orders []rounds.Order) {
	h.recordOutcome()
	_, _, nodes := h.m.LastPlace()
	for _, o := range orders {
		switch {
		case o.Run != nil:
			h.runOrders <- runOrder{*o.Run, h.stops.BeginRound()} // there is room: the agent has entered, and waits
		case o.Notice != nil:
			h.reportWait(o.Notice.Note)
			level, advice := zerolog.InfoLevel, ""
			if o.Notice.Next > 0 {
				level = zerolog.WarnLevel
			}
			if o.Notice.Missing && nodes == 0 && h.opts.WaitAdvice != "" {
				advice = "; " + h.opts.WaitAdvice
			}
			h.log.WithLevel(level).Msg("waiting for the next round: " + o.Notice.Note + advice)
		case o.Warning != "":
			h.log.Warn().Msg(o.Warning)
		case o.Reenter:
			signal(h.reenter)
		case o.Join:
			signal(h.joins)
		case o.Look != nil:
			h.sendLook(*o.Look)
		case o.Hang != nil:
			if h.opts.HangFound != nil {
				h.opts.HangFound(o.Hang)
			}
		case o.HangOver:
			if h.opts.HangFound != nil {
				h.opts.HangFound(nil)
			}
		case o.Stop != nil:
			s := *o.Stop
			if o.KillIn >= 0 {
				s.KillBy = time.Now().Add(o.KillIn)
			}
			h.stops.Send(s)
		}
	}
	if e := h.m.EndingOnceStopped(); e != nil {
		h.finish(e)
	}
}

// signal sends to a channel that holds one value, unless the last one has not been received yet.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// finish records the end and stops drive.
func (h *Handler) finish(e *rounds.Ending) {
	h.mu.Lock()
	if h.over == nil {
		h.over = e
	}
	cancel := h.cancel
	h.mu.Unlock()
	cancel(errFinished)
}

var errFinished = errors.New("the rendezvous has ended")

// ended reports whether the rendezvous has ended.
func (h *Handler) ended() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over != nil
}

// ending returns the error with which the rendezvous has ended.
func (h *Handler) ending() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.over == nil:
		return rdzv.ErrClosed
	case h.over.Departed:
		return errDeparted
	case h.over.Outcome != nil:
		return &rdzv.EndedError{Outcome: *h.over.Outcome, Late: h.over.Late}
	case !errors.Is(h.over.Err, rdzv.ErrConnection) || h.over.Replaced:
		return h.over.Err
	case h.storeStays && h.opts.StoreAdvice != "":
		return fmt.Errorf("%w (%s)", h.over.Err, h.opts.StoreAdvice)
	case !h.storeStays && h.opts.Advice != "":
		return fmt.Errorf("%w (%s)", h.over.Err, h.opts.Advice)
	default:
		return h.over.Err
	}
}

// errStoreSilent ends a session in a store that does not answer, so that the agent looks for the store anew.
var errStoreSilent = &silentStoreError{}

type silentStoreError struct{}

func (*silentStoreError) Error() string { return "the job's store does not answer" }

// Unwrap returns [coord.ErrUnavailable].
func (*silentStoreError) Unwrap() error { return coord.ErrUnavailable }
