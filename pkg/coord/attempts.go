package coord

import (
	"context"
	"sync"
	"time"
)

// attempts makes the attempts of a plan, each in its own goroutine. It belongs to one goroutine, which must call stop.
type attempts struct {
	plan     addressPlan
	try      func(addr string) attemptResult
	cancel   context.CancelFunc // ends the attempts in progress
	inFlight int
	results  chan attemptResult
	running  sync.WaitGroup
}

// attemptResult is the result of an attempt at an address: a session, or an error and perhaps a denial; see
// addressPlan.failed.
type attemptResult struct {
	addr   string
	got    *established
	err    error
	denial error
}

func newAttempts(
	ctx context.Context, plan addressPlan, try func(ctx context.Context, addr string) attemptResult,
) *attempts {
	ctx, cancel := context.WithCancel(ctx)
	return &attempts{
		plan: plan, cancel: cancel, results: make(chan attemptResult),
		try: func(addr string) attemptResult { return try(ctx, addr) },
	}
}

// begin begins the attempts that are due. again signals when begin must be called again; it is nil if no call is
// needed. more is false if no attempt is in progress and none will begin.
func (r *attempts) begin() (again <-chan time.Time, more bool) {
	for _, addr := range r.plan.begin(time.Now()) {
		r.inFlight++
		r.running.Go(func() { r.results <- r.try(addr) })
	}
	at, ok := r.plan.next()
	if !ok {
		return nil, r.inFlight > 0
	}
	return time.After(time.Until(at)), true
}

// ended must be called with each result that was received.
func (r *attempts) ended(result attemptResult, pause time.Duration) {
	r.inFlight--
	if result.got == nil {
		r.plan.failed(result.addr, result.err, result.denial, time.Now(), pause)
	}
}

// stop cancels the attempts in progress and waits for them. It returns won or, if won is nil, a session that an attempt
// got before it was canceled.
func (r *attempts) stop(won *established) *established {
	r.cancel()
	for ; r.inFlight > 0; r.inFlight-- {
		switch result := <-r.results; {
		case result.got == nil:
		case won == nil:
			won = result.got
		default:
			result.got.nc.Close()
		}
	}
	r.running.Wait()
	return won
}
