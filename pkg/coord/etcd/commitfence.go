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
	lock        chan struct{} // holds one token: the right to use the other fields
	current     fenceEpoch
	mustAdvance bool // a commit of the current epoch has an unknown outcome
}

// fenceEpoch identifies an epoch. create is the create-revision of its key; it is 0 for the first epoch, which has no
// key.
type fenceEpoch struct {
	number int
	create int64
}

func (ts *commitFence) init() {
	ts.lock = make(chan struct{}, 1)
	ts.lock <- struct{}{}
}

func (s *Store) epochKey(number int) string { return s.sessionKey + "/turn/" + strconv.Itoa(number) }

// epochGuard returns the guard of an epoch, and the query that tells whether the guard has failed.
func (s *Store) epochGuard(t fenceEpoch) (guard clientv3.Cmp, over clientv3.Op) {
	key := s.epochKey(max(t.number, 1))
	return clientv3.Compare(clientv3.CreateRevision(key), "=", t.create), clientv3.OpGet(key)
}

// ended reports, from the answer to epochGuard's query, whether the epoch has ended.
func (t fenceEpoch) ended(answer *clientv3.TxnResponse, question int) bool {
	kvs := answer.Responses[question].GetResponseRange().Kvs
	return len(kvs) == 0 && t.create != 0 || len(kvs) > 0 && kvs[0].CreateRevision != t.create
}

// currentEpoch returns the epoch for a commit. It begins a new epoch first if necessary.
func (s *Store) currentEpoch(ctx context.Context) (fenceEpoch, error) {
	ctx, cancel := s.op(ctx)
	defer cancel()
	ts := &s.commitFence
	select {
	case <-ts.lock:
	case <-ctx.Done():
		return fenceEpoch{}, s.explain(ctx, "prepare a commit", context.Cause(ctx))
	}
	defer func() { ts.lock <- struct{}{} }()
	if !ts.mustAdvance {
		return ts.current, nil
	}
	next := s.epochKey(ts.current.number + 1)
	guard, _ := s.epochGuard(ts.current)
	writes := []clientv3.Op{clientv3.OpPut(next, "", clientv3.WithLease(s.lease))}
	if ts.current.number > 0 {
		writes = append(writes, clientv3.OpDelete(s.epochKey(ts.current.number)))
	}
	answer, err := s.cli.Txn(ctx).If(guard).Then(writes...).Else(clientv3.OpGet(next)).Commit()
	switch {
	case errors.Is(err, errLeaseGone):
		return fenceEpoch{}, s.lose("its lease has expired")
	case err != nil:
		return fenceEpoch{}, s.explain(ctx, "prepare a commit", err)
	case answer.Succeeded:
		ts.current = fenceEpoch{ts.current.number + 1, answer.Header.Revision}
	default: // an earlier attempt was applied, or the session's keys are gone
		kvs := answer.Responses[0].GetResponseRange().Kvs
		if len(kvs) == 0 {
			return fenceEpoch{}, s.lose("its lease has expired")
		}
		ts.current = fenceEpoch{ts.current.number + 1, kvs[0].CreateRevision}
	}
	ts.mustAdvance = false
	return ts.current, nil
}

// markUnknown records that a commit of t has an unknown outcome.
func (s *Store) markUnknown(t fenceEpoch) {
	<-s.commitFence.lock
	if s.commitFence.current == t {
		s.commitFence.mustAdvance = true
	}
	s.commitFence.lock <- struct{}{}
}

// errEpochEnded means that a commit was not applied because its epoch had ended.
var errEpochEnded = fmt.Errorf("%w: its epoch has ended", coord.ErrUnavailable)
