package coord

import (
	"context"
	"errors"
	"time"
)

// EndSession ends the session of a dead process by its [Client.Token]. The caller must know that no process of the
// session is left: an agent's guard calls EndSession after it has reaped the job's last process. The store trusts any
// client with the token, and with the shared secret if there is one. EndSession ignores the TTL of opts.
//
// It makes one attempt, which may be repeated. A session that has already ended is not an error. Errors are those of
// [Dial].
//
// If the store may be at other addresses too, EndSession makes an attempt at all of them at once, and at the addresses
// that members of the store's group name. It succeeds if the store at one address has ended the session or does not
// have it. Otherwise it returns an error that may pass, or without such an error the error of the first address.
func EndSession(ctx context.Context, opts DialOptions, token string, others ...string) error {
	plan := addressPlan{once: true}
	for _, addr := range append([]string{opts.Addr}, others...) {
		plan.add(addr, time.Now())
	}
	r := newAttempts(ctx, plan, func(ctx context.Context, addr string) attemptResult {
		a := attempt{opts: opts.at(addr), token: token, end: true}
		got, err := a.open(ctx)
		return attemptResult{addr: addr, got: got, err: err}
	})
	errs := map[string]error{}
	for {
		if _, more := r.begin(); !more {
			r.stop(nil)
			return endSessionError(&r.plan, errs)
		}
		result := <-r.results
		r.ended(result, 0)
		if result.got != nil || errors.Is(result.err, ErrSessionLost) {
			if got := r.stop(result.got); got != nil {
				got.nc.Close()
			}
			return nil
		}
		errs[result.addr] = result.err
	}
}

// endSessionError returns the error of EndSession after an attempt at each address of the plan.
func endSessionError(plan *addressPlan, errs map[string]error) error {
	for _, a := range plan.list {
		if err := errs[a.addr]; errors.Is(err, ErrUnavailable) {
			return err
		}
	}
	return errs[plan.list[0].addr]
}
