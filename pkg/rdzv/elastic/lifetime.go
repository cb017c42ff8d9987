package elastic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/internal/boottime"
	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// earlyCalls keeps what the agent reports before it has a session, for the first report.
type earlyCalls struct {
	leave     bool
	close     bool   // no session is opened any more
	closeBy   string // who has asked for that
	failure   *rdzv.Failure
	preempt   *rdzv.Preemption // asked for at preemptAt, on the clock of boottime
	preemptAt time.Duration
}

// start opens the first session and starts the driving goroutine, once.
func (h *Handler) start(ctx context.Context) error {
	h.opening.Lock()
	defer h.opening.Unlock()
	bounded, cancel := h.withinJoin(ctx)
	defer cancel()
	if started, err := h.setAbort(cancel); started || err != nil {
		return err
	}
	origin := boottime.Now()
	store, err := h.openStore(bounded)
	_, aborted := h.setAbort(nil)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case aborted != nil:
		return aborted
	default:
		return connectionError(err)
	}
	opts := rounds.MemberOptions{Node: h.opts.Node, Job: h.opts.Job, TTL: store.TTL()}
	m := rounds.NewMember(opts, firstProof(store, origin))
	h.notifySession(store)
	driving, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.early.leave {
		m.Leave(0)
	}
	if p := h.early.preempt; p != nil {
		m.Preempt(h.early.preemptAt-origin, *p)
	}
	if h.early.close {
		m.Close(h.early.closeBy)
	}
	h.m, h.cancel, h.started = m, stop, true
	go h.drive(driving, store, origin)
	return nil
}

// setAbort sets how Shutdown and SetClosed end the opening of the first session. It returns an error if the session
// must not be opened, and whether it is open already.
func (h *Handler) setAbort(abort context.CancelFunc) (started bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.started {
		h.abort = abort
	}
	switch {
	case h.isClosed:
		return h.started, rdzv.ErrClosed
	case h.early.close && !h.started:
		return false, &rdzv.EndedError{Outcome: closedEarly(h.early.closeBy)}
	}
	return h.started, nil
}

// closedEarly is how the job ends for a node on which it was closed before the node had a session.
func closedEarly(by string) rdzv.Outcome {
	return rdzv.Outcome{
		Ending: rdzv.EndClosed, ClosedBy: by, Text: "it was closed on this node, which had not joined it yet",
	}
}

// closeEarly makes sure that no first session is opened any more, unless one is open already.
func (h *Handler) closeEarly(by string) (started bool) {
	h.mu.Lock()
	h.early.close, h.early.closeBy = true, cmp.Or(h.early.closeBy, by)
	abort := h.abort
	h.mu.Unlock()
	if abort != nil {
		abort()
	}
	h.opening.Lock() // from now on no session is being opened
	defer h.opening.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.started && h.over == nil {
		o := closedEarly(h.early.closeBy)
		h.over = &rounds.Ending{Outcome: &o}
	}
	return h.started
}

// ErrNotJoined is the error of SetClosed before this node has joined the run: this node ends, and the run is not closed
// for the others.
var ErrNotJoined = fmt.Errorf("%w: this node had not joined it, and it is not closed for other nodes",
	rdzv.ErrConnection)

// call runs f in the driving goroutine, unless that has not begun or has ended.
func (h *Handler) call(f func(now time.Duration)) {
	h.mu.Lock()
	started := h.started
	h.mu.Unlock()
	if !started {
		return
	}
	select {
	case h.calls <- f:
	case <-h.driveDone:
	}
}

// callEarly is call for reports that must not be lost before the first session: keep stores the report until then.
func (h *Handler) callEarly(keep func(*earlyCalls), f func(now time.Duration)) {
	h.mu.Lock()
	if !h.started {
		keep(&h.early)
	}
	h.mu.Unlock()
	h.call(f)
}

// takeEarlyFailure returns the failure that was reported before the first session; nil for none.
func (h *Handler) takeEarlyFailure() *rdzv.Failure {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.early.failure
	h.early.failure = nil
	return f
}

// Fail implements rdzv.Handler. A failure before the first session goes into the first report.
func (h *Handler) Fail(f rdzv.Failure) {
	h.callEarly(func(e *earlyCalls) { e.failure = &f }, func(now time.Duration) { h.m.Fail(now, f) })
}

// Preempt implements rdzv.Handler.
func (h *Handler) Preempt(p rdzv.Preemption) {
	at := boottime.Now()
	h.callEarly(func(e *earlyCalls) { e.preempt, e.preemptAt = &p, at }, func(now time.Duration) { h.m.Preempt(now, p) })
}

// Leave implements rdzv.Handler.
func (h *Handler) Leave() {
	h.callEarly(func(e *earlyCalls) { e.leave = true }, func(now time.Duration) { h.m.Leave(now) })
}

// recordOutcome records how the job has ended, once the member knows. Only the driving goroutine calls it.
func (h *Handler) recordOutcome() {
	if over := h.m.JobEnding(); over != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.outcome == nil {
			h.outcome = over
			close(h.endKnown)
		}
	}
}

// IsClosed implements rdzv.Handler. It asks nobody: it is true once this agent has learned that the job has ended,
// takes part no more, or was shut down.
func (h *Handler) IsClosed(context.Context) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isClosed || h.over != nil || h.outcome != nil, nil
}

// SetClosed implements rdzv.Handler. The leader ends the run; SetClosed returns when this agent has learned that, after
// the close timeout at the latest. Workers may still be stopping. Before NextRendezvous has opened the first session,
// only this node ends: NextRendezvous returns an [*rdzv.EndedError] from then on, and SetClosed [ErrNotJoined], or nil
// if the job has one node. After Shutdown SetClosed returns nil if the end of the job is known, else an error.
func (h *Handler) SetClosed(ctx context.Context, by string) error {
	err := h.setClosed(ctx, by)
	if err != nil {
		return fmt.Errorf("close rendezvous %q: %w", h.opts.RunID, err)
	}
	return nil
}

func (h *Handler) setClosed(ctx context.Context, by string) error {
	h.mu.Lock()
	known, started := h.outcome != nil, h.started
	h.mu.Unlock()
	switch {
	case known:
		return nil
	case started || h.closeEarly(by):
	case h.opts.Job.Max == 1:
		return nil
	default:
		return ErrNotJoined
	}
	limit := cmp.Or(h.opts.CloseTimeout, DefaultCloseTimeout)
	late := fmt.Errorf("%w: no answer in %s", rdzv.ErrTimeout, seconds.Format(limit))
	bounded, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	h.call(func(time.Duration) { h.m.Close(by) })
	select {
	case <-h.endKnown:
		return nil
	case <-h.driveDone:
	case <-bounded.Done():
		return context.Cause(bounded)
	}
	select {
	case <-h.endKnown: // the two came together
		return nil
	default:
		return h.ending()
	}
}

// Shutdown implements rdzv.Handler. A process that hosts the run's store waits until the other agents have learned of
// the end.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.mu.Lock()
	h.isClosed = true
	abort := h.abort
	h.mu.Unlock()
	if abort != nil {
		abort()
	}
	h.opening.Lock() // from now on no session is being opened
	defer h.opening.Unlock()
	h.mu.Lock()
	stop := h.cancel
	h.mu.Unlock()
	if stop != nil {
		stop(errFinished)
		<-h.driveDone
	}
	h.tasks.Wait()
	return errors.Join(h.opts.Access.Close(ctx, h.Outcome() != nil), h.closeStore())
}

// Outcome returns how the job has ended, nil as long as this agent does not know an end.
func (h *Handler) Outcome() *rdzv.Outcome {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.outcome == nil {
		return nil
	}
	return h.outcome.Outcome
}
