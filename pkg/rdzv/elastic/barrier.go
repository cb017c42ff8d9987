package elastic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// errDeparted says that this node has left the exit barrier, and with it the rendezvous. errLeftBarrier is its form for
// Succeed.
var (
	errDeparted    = fmt.Errorf("%w: this node has left the exit barrier", rdzv.ErrClosed)
	errLeftBarrier = fmt.Errorf("%w: this node has left the exit barrier", rdzv.ErrTimeout)
)

// Succeed implements rdzv.Handler.
func (h *Handler) Succeed(ctx context.Context, barrier time.Duration) (*rdzv.Stop, error) {
	if h.finishedAt.IsZero() {
		h.finishedAt = time.Now()
	}
	h.call(func(now time.Duration) {
		switch {
		case h.m.Succeed(now):
			h.stops.Withdraw()
		case h.m.MustStop(): // the agent may have received the Stop while it waited for exits
			h.stops.Repeat()
		}
	})
	hosts := h.hosts() // before the end of the rendezvous closes the worker store
	stop, decided := h.awaitOthers(ctx, barrier)
	if !decided && ctx.Err() == nil {
		if err := h.needed(); err != nil {
			return nil, err
		}
		stop, decided = h.depart(ctx)
	}
	switch {
	case !decided:
		return nil, context.Cause(ctx)
	case stop != nil:
		return stop, nil
	}
	err := h.ending()
	if end, ok := errors.AsType[*rdzv.EndedError](err); ok && end.Outcome.Ending == rdzv.EndSucceeded {
		return nil, nil
	}
	if errors.Is(err, errDeparted) {
		h.logDeparture(hosts)
		return nil, errLeftBarrier
	}
	return nil, err
}

// awaitOthers waits at the exit barrier until the round must be run again, which the Stop says, or the rendezvous has
// ended. decided is false if limit is over, the host of the store has ended, or ctx ends before.
func (h *Handler) awaitOthers(ctx context.Context, limit time.Duration) (stop *rdzv.Stop, decided bool) {
	for began := time.Now(); ; {
		left := min(limit-time.Since(began), h.untilHostGone())
		stop, decided = h.awaitVerdict(ctx, max(0, left))
		if decided || left <= 0 || ctx.Err() != nil {
			return stop, decided
		}
	}
}

// awaitVerdict is awaitOthers with a limit alone.
func (h *Handler) awaitVerdict(ctx context.Context, limit time.Duration) (stop *rdzv.Stop, decided bool) {
	over := time.NewTimer(limit)
	defer over.Stop()
	for {
		select {
		case s := <-h.stops.C:
			if s.Round == h.current && !h.ended() {
				return &s, true
			}
		case <-h.driveDone:
			return nil, true
		case <-over.C:
			return nil, false
		case <-ctx.Done():
			return nil, false
		}
	}
}

// untilHostGone returns how long a node that has finished still waits for the agent that hosts the store: the TTL of
// sessions, from when this node has finished and nobody listens at the host any more. For example, the others may have
// ended while this agent was paused.
func (h *Handler) untilHostGone() time.Duration {
	a, ok := h.opts.Access.(interface{ RefusedSince() time.Time })
	if !ok || !h.storeEnds || h.hostsRendezvous() || h.opts.Job.TTL == 0 {
		return rdzv.NoTimeout
	}
	since := a.RefusedSince()
	switch {
	case since.IsZero():
		return h.opts.Job.TTL
	case since.Before(h.finishedAt):
		since = h.finishedAt
	}
	return h.opts.Job.TTL - time.Since(since)
}

// depart leaves the exit barrier. It waits for the leader to confirm that, so that the leader does not count on this
// node any more. A Stop that arrives before wins. Only the driving goroutine decides which came first. decided is false
// if ctx ends before.
func (h *Handler) depart(ctx context.Context) (stop *rdzv.Stop, decided bool) {
	h.call(func(now time.Duration) { h.m.Depart(now) })
	stop, decided = h.awaitVerdict(ctx, cmp.Or(h.opts.CloseTimeout, DefaultCloseTimeout))
	if decided || ctx.Err() != nil {
		return stop, decided
	}
	h.call(func(time.Duration) { h.m.DepartUnconfirmed() })
	return h.awaitVerdict(ctx, rdzv.NoTimeout)
}

// hostsRendezvous reports whether the rendezvous ends with this process.
func (h *Handler) hostsRendezvous() bool {
	access, ok := h.opts.Access.(interface{ HostsAlone() bool })
	return ok && access.HostsAlone()
}

// hosts says which store that other nodes use is on this node; empty if none is.
func (h *Handler) hosts() string {
	h.mu.Lock()
	store := h.store
	h.mu.Unlock()
	switch {
	case h.hostsRendezvous():
		return "hosts the rendezvous"
	case store != nil && store.WorkerStore != nil:
		return "hosts the workers' store"
	}
	return ""
}

// needed returns an *rdzv.NeededError while this node has to stay at the exit barrier because of a store that it hosts.
// Even with Options.LeaveStores it stays for the TTL of sessions, so that nodes that finish at about the same time get
// the job's result.
func (h *Handler) needed() error {
	why := h.hosts()
	if why == "" || h.untilHostGone() <= 0 { // without a rendezvous nobody's workers run any more
		return nil
	}
	others := ""
	if a, ok := h.opts.Access.(interface{ StillRunning() string }); ok {
		others = a.StillRunning()
	}
	if !h.opts.LeaveStores {
		return &rdzv.NeededError{Why: why, Others: others}
	}
	if left := h.opts.Job.TTL - time.Since(h.finishedAt); left > 0 {
		return &rdzv.NeededError{Why: why, Others: others, For: left}
	}
	return nil
}

// logDeparture logs who still ran when this node left the exit barrier, and which store of theirs was on this node.
func (h *Handler) logDeparture(hosts string) {
	h.mu.Lock()
	others := h.over.Others
	h.mu.Unlock()
	level, consequence := zerolog.InfoLevel, ""
	if hosts != "" {
		level, consequence = zerolog.WarnLevel, ": they lose their store, because this node "+hosts
	}
	if others == "" {
		level, others = zerolog.WarnLevel, "the leader did not answer, so other nodes may still run"
	}
	h.log.WithLevel(level).Msg("leaving the exit barrier: " + others + consequence)
}
