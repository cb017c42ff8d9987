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
			store: store, prefix: prefixOf(h.opts.RunID), timeout: h.opts.Timeout, log: h.log,
			waiting: &h.waiting, m: h.m, clock: boottime.Now, origin: origin, calls: h.calls, execute: h.execute,
			probe: func(now time.Duration) optionalTime { return h.stops.probeAgent(now, h.m, h.log) }, looks: h.looks, examine: h.opts.Examine, stackRequests: h.stackRequests,
			watchdog: h.opts.Watchdog, status: h.opts.Status, stacks: h.opts.Stacks, statusInterval: h.opts.StatusInterval,
		}
		if access, ok := h.opts.Access.(storeJoiner); ok && access.keptTogether() {
			if client, ok := store.(*coord.Client); ok {
				d.storeMoved = func(at storeAddrs) { h.storeMoved(client, at) }
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
			h.m.sessionRenewed(firstProof(store, origin), store.TTL())
			continue
		case !h.mayRejoin(err):
			lost := &storeLostError{workers: h.m.workers(), err: err}
			h.m.storeLost(d.now())
			h.m.giveUp(lost)
			h.execute(h.m.takeOrders())
			if h.serve(ctx, d, func() bool { return !h.m.workers() }) {
				h.finish(h.m.isOver())
			}
			return
		}
		switch {
		case errors.Is(err, errStoreSilent):
			h.log.Warn().Msg("no node that keeps the job's store answers: looking for the store anew")
		case errors.Is(err, coord.ErrReplaced) && h.m.round() < 0:
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
			h.m.storeReplaced(d.now())
		}
		h.m.sessionRenewed(firstProof(store, origin), store.TTL())
	}
}

// mayRejoin reports whether the agent opens another session once its workers have ended: the store has ended the
// session, or another store of the same run has replaced it.
func (h *Handler) mayRejoin(err error) bool {
	return errors.Is(err, coord.ErrSessionLost) || errors.Is(err, errStoreSilent) ||
		errors.Is(err, coord.ErrReplaced) && (!h.opts.SharedRunID || h.m.round() < 0)
}

// forgetter is an Access that returns to the same store each time, until Forget makes it look for the store again.
type forgetter interface{ Forget() }

// previousStoreGone reports whether the store belonged to the run before and this agent was waiting for it to end. The
// access then looks for another store.
func (h *Handler) previousStoreGone(err error) bool {
	access, ok := h.opts.Access.(forgetter)
	if !ok || errors.Is(err, coord.ErrSessionLost) || !h.m.awaitsRerun() {
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
	return boottime.Now() - origin - stopTimeout(store.TTL())
}

// minPreemptedRejoin is how long an agent of a preempted job tries to join again, at least.
const minPreemptedRejoin = 5 * time.Second

// rejoin waits until every worker has ended and opens another session. It returns nil if it cannot.
func (h *Handler) rejoin(ctx context.Context, d *driver) coord.Store {
	h.m.sessionLost(d.now())
	d.setWatchdog()
	h.execute(h.m.takeOrders())
	if !h.serve(ctx, d, h.m.isIdle) {
		return nil
	}
	bounded, cancel := h.withinJoin(ctx)
	defer cancel()
	if h.m.preemption() != nil { // no round follows: only the end of the job is left to learn
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
			if h.m.isDeparting() { // no leader can confirm it
				h.m.departUnconfirmed()
			}
			if h.m.isLeaving() || h.m.isOver() != nil {
				cancel()
			}
			h.m.takeOrders() // the orders belong to the round that has ended
		case o := <-open:
			if o.err != nil {
				h.finish(cmp.Or(h.m.isOver(), &ending{err: connectionError(o.err)}))
				return nil
			}
			h.notifySession(o.store)
			return o.store
		}
	}
}

// serve makes the agent's calls, without a session, until done returns true; it returns false if ctx ends before. The
// watchdog's deadline stays until the workers have ended. Then it is cleared, since the watchdog would also kill the
// processes that the agent runs next, such as the preflight command.
func (h *Handler) serve(ctx context.Context, d *driver, done func() bool) bool {
	for {
		if !h.m.workers() {
			d.setWatchdog()
		}
		if done() {
			return true
		}
		select {
		case call := <-h.calls:
			call(d.now())
			h.execute(h.m.takeOrders())
		case <-ctx.Done():
			return false
		}
	}
}

// endSession ends the session. A node that leaves reports that first, since otherwise it would count as lost. While
// workers may run, the session is not ended but left to expire, because its end proves that no worker is left. ctx ends
// only when none is.
func (h *Handler) endSession(ctx context.Context, d *driver) {
	timeout := h.opts.Timeout
	workers := ctx.Err() == nil && h.m.workers()
	if workers || h.m.silent(d.now()) { // a silent store would not answer
		timeout = 0
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	var err error
	if h.m.isLeaving() && d.store.Err() == nil {
		err = d.putReport(bounded, h.m.currentReport())
		if round, rank, nodes := h.m.lastPlace(); err == nil && h.m.mayDepart() && nodes > 1 {
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
func (h *Handler) execute(orders []order) {
	h.recordOutcome()
	_, _, nodes := h.m.lastPlace()
	for _, o := range orders {
		switch {
		case o.run != nil:
			h.runOrders <- runOrder{*o.run, h.stops.beginRound()} // there is room: the agent has entered, and waits
		case o.notice != nil:
			h.reportWait(o.notice.Note)
			level, advice := zerolog.InfoLevel, ""
			if o.notice.Next > 0 {
				level = zerolog.WarnLevel
			}
			if o.notice.Missing && nodes == 0 && h.opts.WaitAdvice != "" {
				advice = "; " + h.opts.WaitAdvice
			}
			h.log.WithLevel(level).Msg("waiting for the next round: " + o.notice.Note + advice)
		case o.warning != "":
			h.log.Warn().Msg(o.warning)
		case o.reenter:
			signal(h.reenter)
		case o.join:
			signal(h.joins)
		case o.look != nil:
			h.sendLook(*o.look)
		case o.hang != nil:
			if h.opts.HangFound != nil {
				h.opts.HangFound(o.hang)
			}
		case o.hangOver:
			if h.opts.HangFound != nil {
				h.opts.HangFound(nil)
			}
		case o.stop != nil:
			s := *o.stop
			if o.killIn >= 0 {
				s.KillBy = time.Now().Add(o.killIn)
			}
			h.stops.send(s)
		}
	}
	if e := h.m.hasEnded(); e != nil {
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
func (h *Handler) finish(e *ending) {
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
	case h.over.departed:
		return errDeparted
	case h.over.outcome != nil:
		return &rdzv.EndedError{Outcome: *h.over.outcome, Late: h.over.late}
	case !errors.Is(h.over.err, rdzv.ErrConnection) || h.over.replaced:
		return h.over.err
	case h.storeStays && h.opts.StoreAdvice != "":
		return fmt.Errorf("%w (%s)", h.over.err, h.opts.StoreAdvice)
	case !h.storeStays && h.opts.Advice != "":
		return fmt.Errorf("%w (%s)", h.over.err, h.opts.Advice)
	default:
		return h.over.err
	}
}

// errStoreSilent ends a session in a store that does not answer, so that the agent looks for the store anew.
var errStoreSilent = &silentStoreError{}

type silentStoreError struct{}

func (*silentStoreError) Error() string { return "the job's store does not answer" }

// Unwrap returns [coord.ErrUnavailable].
func (*silentStoreError) Unwrap() error { return coord.ErrUnavailable }
