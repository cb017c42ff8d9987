package coord

import (
	"context"
	"errors"
)

// EndSession ends a session, by the [Client.Token] of a process that has died. The caller must know that nothing is left of
// what the session stands for: an agent's guard does so once it has reaped the last process of the job. The store believes
// whoever has the token, and the shared secret if there is one. Of opts, TTL does not count.
//
// It makes one attempt, which may be repeated. A session that is over already is no error. Errors are those of [Dial].
func EndSession(ctx context.Context, opts DialOptions, token string) error {
	g := greeting{opts: &opts, token: token, end: true}
	got, err := g.begin(ctx)
	switch {
	case errors.Is(err, ErrSessionLost):
		return nil
	case err != nil:
		return err
	}
	return got.nc.Close()
}
