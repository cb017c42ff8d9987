package etcd

import (
	"context"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// EndSession ends the session of a process that has died, by revoking its lease. The caller must know that nothing is left of
// what the session stands for. options are those of the process; DialTimeout bounds the whole.
//
// It makes one attempt, which may be repeated. A session that is over already is no error. Errors are those of [Open].
func EndSession(ctx context.Context, options Options, session coord.SessionID) error {
	lease, err := strconv.ParseInt(string(session), 16, 64)
	if err != nil {
		return fmt.Errorf("etcd: %q is no session", session)
	}
	if options, err = options.withDefaults(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, options.DialTimeout)
	defer cancel()
	s := newStore(options, cancel)
	s.lease = clientv3.LeaseID(lease)
	if err := s.connect(ctx); err != nil {
		return err
	}
	return s.Close(ctx)
}
