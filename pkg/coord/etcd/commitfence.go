package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// commitFence prevents a commit with an unknown outcome from being applied after a later commit of the same client,
// whose key it would set back. It divides the session's commits into epochs, and each commit is guarded by its epoch.
// After a commit with an unknown outcome, the next commit first begins a new epoch. The first epoch requires that the
// key of the second one does not exist, so a session without such an incident needs no extra key and no extra request.
type commitFence struct {
	lock        chan struct{} // holds a token while somebody uses the other fields; capacity 1
	current     fenceEpoch
	mustAdvance bool // a commit of the current epoch has an unknown outcome
}

// fenceEpoch identifies an epoch. create is the create-revision of its key; it is 0 for the first epoch, which has no
// key.
type fenceEpoch struct {
	number int
	create int64
}

func (s *Store) epochKey(number int) string { return s.sessionKey + "/turn/" + strconv.Itoa(number) }

// epochGuard returns the guard of an epoch, and the query that tells whether the guard has failed.
func (s *Store) epochGuard(epoch fenceEpoch) (guard clientv3.Cmp, query clientv3.Op) {
	key := s.epochKey(max(epoch.number, 1))
	return clientv3.Compare(clientv3.CreateRevision(key), "=", epoch.create), clientv3.OpGet(key)
}

// ended reports, from the answer to epochGuard's query, whether the epoch has ended.
func (epoch fenceEpoch) ended(resp *clientv3.TxnResponse, index int) bool {
	kvs := resp.Responses[index].GetResponseRange().Kvs
	return len(kvs) == 0 && epoch.create != 0 || len(kvs) > 0 && kvs[0].CreateRevision != epoch.create
}

// currentEpoch returns the epoch for a commit. It begins a new epoch first if necessary.
func (s *Store) currentEpoch(ctx context.Context) (fenceEpoch, error) {
	ctx, cancel := s.op(ctx)
	defer cancel()
	f := &s.commitFence
	select {
	case f.lock <- struct{}{}:
	case <-ctx.Done():
		return fenceEpoch{}, s.explain(ctx, "prepare a commit", context.Cause(ctx))
	}
	defer func() { <-f.lock }()
	if !f.mustAdvance {
		return f.current, nil
	}
	next := s.epochKey(f.current.number + 1)
	guard, _ := s.epochGuard(f.current)
	writes := []clientv3.Op{clientv3.OpPut(next, "", clientv3.WithLease(s.lease))}
	if f.current.number > 0 {
		writes = append(writes, clientv3.OpDelete(s.epochKey(f.current.number)))
	}
	resp, err := s.cli.Txn(ctx).If(guard).Then(writes...).Else(clientv3.OpGet(next)).Commit()
	switch {
	case errors.Is(err, errLeaseGone):
		return fenceEpoch{}, s.lose("its lease has expired")
	case err != nil:
		return fenceEpoch{}, s.explain(ctx, "prepare a commit", err)
	case resp.Succeeded:
		f.current = fenceEpoch{f.current.number + 1, resp.Header.Revision}
	default: // an earlier attempt was applied, or the session's keys are gone
		kvs := resp.Responses[0].GetResponseRange().Kvs
		if len(kvs) == 0 {
			return fenceEpoch{}, s.lose("its lease has expired")
		}
		f.current = fenceEpoch{f.current.number + 1, kvs[0].CreateRevision}
	}
	f.mustAdvance = false
	return f.current, nil
}

// markUnknown records that a commit of epoch has an unknown outcome.
func (s *Store) markUnknown(epoch fenceEpoch) {
	s.commitFence.lock <- struct{}{}
	if s.commitFence.current == epoch {
		s.commitFence.mustAdvance = true
	}
	<-s.commitFence.lock
}

// errEpochEnded means that a commit was not applied because its epoch had ended.
var errEpochEnded = fmt.Errorf("%w: its epoch has ended", coord.ErrUnavailable)
