package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// Commit implements coord.Store. Each of its requests waits at most OpTimeout. Keys with a TTL need additional
// requests.
func (s *Store) Commit(ctx context.Context, guards []coord.Guard, ops []coord.Op) (coord.Revision, error) {
	if err := coord.CheckCommit(guards, ops); err != nil {
		return 0, err
	}
	if err := s.Err(); err != nil {
		return 0, err
	}
	// A commit of a lost session must do nothing. A transaction with an owned put fails if the session's lease is gone.
	// Other transactions are guarded by the session's key, if etcd's limit leaves room for one more guard.
	ownedPut := slices.ContainsFunc(ops, func(op coord.Op) bool { return op.Owned && !op.Delete })
	guardSession := !ownedPut && len(guards) < coord.MaxOps
	if guardSession {
		if err := s.keyOnce.make(ctx, s); err != nil {
			return 0, err
		}
	}
	leases, err := s.grant(ctx, ops)
	if err != nil {
		return 0, err
	}
	for last := (fenceEpoch{number: -1}); ; {
		var epoch fenceEpoch
		rev, result := coord.Revision(0), notApplied
		if epoch, err = s.currentEpoch(ctx); err == nil {
			rev, result, err = s.transact(ctx, epoch, guards, ops, leases, guardSession)
		}
		switch {
		case errors.Is(err, errEpochEnded) && epoch != last:
			// Another commit's outcome was unknown. Try again in the new epoch.
			last = epoch
			continue
		case errors.Is(err, errEpochEnded): // nobody began a new epoch, so the session's keys are gone
			err = s.missingLease(ctx, true)
		case result == outcomeUnknown:
			s.markUnknown(epoch)
		case result == notApplied:
			s.revoke(ctx, leases)
		}
		return rev, err
	}
}

// outcome says whether etcd has applied a transaction.
type outcome int

const (
	outcomeUnknown outcome = iota
	applied
	notApplied
)

func (s *Store) transact(
	ctx context.Context, epoch fenceEpoch, guards []coord.Guard, ops []coord.Op,
	leases map[time.Duration]clientv3.LeaseID, guardSession bool,
) (coord.Revision, outcome, error) {
	compares := make([]clientv3.Cmp, 0, len(guards)+2)
	for _, g := range guards {
		compares = append(compares, clientv3.Compare(clientv3.CreateRevision(s.root+g.Key), "=", int64(g.Create)))
	}
	var otherwise []clientv3.Op
	if guardSession {
		compares = append(compares, clientv3.Compare(clientv3.CreateRevision(s.sessionKey), ">", 0))
		otherwise = append(otherwise, clientv3.OpGet(s.sessionKey, clientv3.WithCountOnly()))
	}
	guardEpoch := len(compares) < coord.MaxOps
	if guardEpoch {
		guard, query := s.epochGuard(epoch)
		compares, otherwise = append(compares, guard), append(otherwise, query)
	}
	writes := make([]clientv3.Op, 0, len(ops))
	for _, op := range ops {
		writes = append(writes, s.etcdOp(op, leases))
	}
	opCtx, cancel := s.op(ctx)
	defer cancel()
	resp, err := s.cli.Txn(opCtx).If(compares...).Then(writes...).Else(otherwise...).Commit()
	switch {
	case errors.Is(err, errLeaseGone):
		return 0, notApplied, s.missingLease(ctx, len(leases) > 0)
	case err != nil:
		err = s.explain(opCtx, "commit", err)
		if errors.Is(err, coord.ErrTooLarge) || errors.As(err, new(*coord.RefusedError)) {
			return 0, notApplied, err
		}
		return 0, outcomeUnknown, err
	case resp.Succeeded:
		return coord.Revision(resp.Header.Revision), applied, nil
	case guardSession && resp.Responses[0].GetResponseRange().Count == 0:
		return 0, notApplied, s.lose("its lease has expired")
	case guardEpoch && epoch.ended(resp, len(otherwise)-1):
		return 0, notApplied, errEpochEnded
	}
	return 0, notApplied, fmt.Errorf("commit: %w", coord.ErrConflict)
}

// etcdOp converts an op.
func (s *Store) etcdOp(op coord.Op, leases map[time.Duration]clientv3.LeaseID) clientv3.Op {
	key := s.root + op.Key
	switch {
	case op.Delete:
		return clientv3.OpDelete(key)
	case op.Owned:
		return clientv3.OpPut(key, string(op.Value), clientv3.WithLease(s.lease))
	case op.TTL > 0:
		return clientv3.OpPut(key, string(op.Value), clientv3.WithLease(leases[op.TTL]))
	}
	return clientv3.OpPut(key, string(op.Value))
}

// missingLease returns the error of a transaction that failed because a lease was missing. The lease is the session's,
// or one for a key's TTL that ended before the transaction arrived.
func (s *Store) missingLease(ctx context.Context, mayBeTTL bool) error {
	if mayBeTTL {
		ended, err := s.leaseEnded(ctx)
		if err != nil {
			return err
		}
		if !ended {
			return fmt.Errorf("commit: %w: it took longer than a key's TTL and was not applied", coord.ErrUnavailable)
		}
	}
	return s.lose("its lease has expired")
}

// grant gets a new lease for each TTL among the ops.
func (s *Store) grant(ctx context.Context, ops []coord.Op) (map[time.Duration]clientv3.LeaseID, error) {
	var leases map[time.Duration]clientv3.LeaseID
	for _, op := range ops {
		if op.TTL <= 0 || op.Delete || op.Owned || leases[op.TTL] != clientv3.NoLease {
			continue
		}
		opCtx, cancel := s.op(ctx)
		seconds := max(1, int64((op.TTL+time.Second-1)/time.Second))
		granted, err := s.cli.Grant(opCtx, seconds)
		if err != nil {
			err = s.explain(opCtx, "prepare a commit", err)
			cancel()
			s.revoke(ctx, leases)
			return nil, err
		}
		cancel()
		if leases == nil {
			leases = make(map[time.Duration]clientv3.LeaseID)
		}
		leases[op.TTL] = granted.ID
	}
	return leases, nil
}

// revoke revokes leases that no key uses. Leases that it cannot revoke expire.
func (s *Store) revoke(ctx context.Context, leases map[time.Duration]clientv3.LeaseID) {
	if len(leases) == 0 {
		return
	}
	ctx, cancel := s.op(context.WithoutCancel(ctx))
	defer cancel()
	for _, lease := range leases {
		if _, err := s.cli.Revoke(ctx, lease); err != nil {
			s.options.Logger.Debug().Err(err).Msg("cannot revoke an unused etcd lease")
		}
	}
}

// sessionKeyOnce creates the session's key when it is first needed. Most agents only write keys that they own and never
// need it.
type sessionKeyOnce struct {
	lock chan struct{} // holds a token while somebody uses made; capacity 1
	made bool
}

func (f *sessionKeyOnce) make(ctx context.Context, s *Store) error {
	ctx, cancel := s.op(ctx)
	defer cancel()
	select {
	case f.lock <- struct{}{}:
	case <-ctx.Done():
		return s.explain(ctx, "prepare a commit", context.Cause(ctx))
	}
	defer func() { <-f.lock }()
	if f.made {
		return nil
	}
	_, err := s.cli.Put(ctx, s.sessionKey, "", clientv3.WithLease(s.lease))
	switch {
	case errors.Is(err, errLeaseGone):
		return s.lose("its lease has expired")
	case err != nil:
		return s.explain(ctx, "prepare a commit", err)
	}
	f.made = true
	return nil
}
