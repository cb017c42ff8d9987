package agent

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// DefaultExitBarrierTimeout is the exit barrier's time-out of torch 2.14.
const DefaultExitBarrierTimeout = 5 * time.Minute

// exitBarrier waits until the workers of every node have exited with 0, at most for the exit barrier's time-out. It
// returns a Stop if the workers must run again. This node's workers have all exited with 0, so only three things keep
// the node from success: a job that has failed or was closed, a Stop, or the end of ctx.
func (a *Agent) exitBarrier(ctx context.Context) (*rdzv.Stop, error) {
	began, timeout := time.Now(), max(0, cmp.Or(a.opts.ExitBarrierTimeout, DefaultExitBarrierTimeout))
	others := a.round.WorldSize > 1
	if others {
		a.log.Info().Msgf("all workers have exited with 0: waiting up to %s for the other nodes to finish",
			seconds.Format(timeout))
	}
	stop, err := a.awaitOthers(ctx, timeout)
	waited := seconds.Format(time.Since(began))
	switch {
	case ctx.Err() != nil && !errors.As(err, new(*rdzv.EndedError)):
		return nil, context.Cause(ctx)
	case err == nil && stop == nil:
		if others {
			a.log.Info().Str("waited", waited).Msg("the wait at the exit barrier is over")
		}
		return nil, nil
	case err == nil, errors.As(err, new(*rdzv.EndedError)):
		return stop, err
	}
	a.alone = true
	if errors.Is(err, rdzv.ErrTimeout) {
		a.log.Info().Str("waited", waited).Msg("leaving the exit barrier: other nodes may still run")
		return nil, nil
	}
	a.log.Warn().Err(err).Str("waited", waited).Msg(unknownEnd)
	return nil, nil
}

// unknownEnd is logged when a node that has succeeded loses the others.
const unknownEnd = "how the other nodes end is not known; this node ends with success, because all of its workers did"

// successStands reports whether this node ends with success although err has ended its rendezvous. It does if the
// workers of its last round have all exited with 0 and should have run again, but the other nodes are lost, so that
// nobody knows how the job ends.
func (a *Agent) successStands(ctx context.Context, err error) bool {
	switch {
	case !a.done || ctx.Err() != nil || !errors.Is(err, rdzv.ErrRendezvous):
		return false
	case errors.As(err, new(*rdzv.EndedError)), errors.Is(err, rdzv.ErrRefused):
		return false
	}
	a.log.Warn().Err(err).Msg(unknownEnd)
	a.history.reopen()
	a.history.end(report.EndSuccess, "", nil)
	return true
}

// awaitOthers calls Succeed until no other node depends on this one.
func (a *Agent) awaitOthers(ctx context.Context, timeout time.Duration) (*rdzv.Stop, error) {
	var others progress
	defer others.end()
	if a.round.WorldSize == 1 {
		timeout = rdzv.NoTimeout
	} else {
		others.begin(ctx, &a.opts, true)
	}
	for {
		stop, err := a.opts.Rendezvous.Succeed(ctx, timeout)
		needed, ok := errors.AsType[*rdzv.NeededError](err)
		if !ok || ctx.Err() != nil {
			return stop, err
		}
		a.log.Warn().Msg(needed.Error())
		timeout = cmp.Or(needed.For, rdzv.NoTimeout)
	}
}
