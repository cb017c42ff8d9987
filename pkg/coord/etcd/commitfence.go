package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// turns keep a commit that was given up, and may still be under way, from being done after a later one of the same client, whose key it would
// set back. Each commit is guarded by the session's turn, and after one whose outcome is not known the turn passes before anything else is
// committed. The first turn is that the second one's key is not there, so that a session without such an accident has no key and no request more.
type commitFence struct {
	lock        chan struct{} // holds one token: the right to use what follows
	current     fenceEpoch
	mustAdvance bool // a commit of this turn may be under way
}

// turn is one of them; create is its key's create-revision, 0 for the first, which has none.
type fenceEpoch struct {
	number int
	create int64
}

func (ts *commitFence) init() {
	ts.lock = make(chan struct{}, 1)
	ts.lock <- struct{}{}
}

func (s *Store) epochKey(number int) string { return s.sessionKey + "/turn/" + strconv.Itoa(number) }

// during is the guard of a turn, and over the question that tells whether that has failed.
func (s *Store) epochGuard(t fenceEpoch) (guard clientv3.Cmp, over clientv3.Op) {
	key := s.epochKey(max(t.number, 1))
	return clientv3.Compare(clientv3.CreateRevision(key), "=", t.create), clientv3.OpGet(key)
}

// isOver reads the answer to the question of during.
func (t fenceEpoch) ended(answer *clientv3.TxnResponse, question int) bool {
	kvs := answer.Responses[question].GetResponseRange().Kvs
	return len(kvs) == 0 && t.create != 0 || len(kvs) > 0 && kvs[0].CreateRevision != t.create
}

// turn returns the turn for a commit; it lets the one before pass first where that is due.
func (s *Store) currentEpoch(ctx context.Context) (fenceEpoch, error) {
	ctx, cancel := s.op(ctx)
	defer cancel()
	ts := &s.commitFence
	select {
	case <-ts.lock:
	case <-ctx.Done():
		return fenceEpoch{}, s.explain(ctx, "commit, before it was begun", context.Cause(ctx))
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
		return fenceEpoch{}, s.lose("its time ran out")
	case err != nil:
		return fenceEpoch{}, s.explain(ctx, "commit, before it was begun", err)
	case answer.Succeeded:
		ts.current = fenceEpoch{ts.current.number + 1, answer.Header.Revision}
	default: // an attempt before was done, or the session's keys are gone
		kvs := answer.Responses[0].GetResponseRange().Kvs
		if len(kvs) == 0 {
			return fenceEpoch{}, s.lose("its time ran out")
		}
		ts.current = fenceEpoch{ts.current.number + 1, kvs[0].CreateRevision}
	}
	ts.mustAdvance = false
	return ts.current, nil
}

// doubt takes note that a commit of t may still be under way.
func (s *Store) markUnknown(t fenceEpoch) {
	<-s.commitFence.lock
	if s.commitFence.current == t {
		s.commitFence.mustAdvance = true
	}
	s.commitFence.lock <- struct{}{}
}

// errTurnOver says that a commit was not done because its turn was over.
var errEpochEnded = fmt.Errorf("%w: its turn was over", coord.ErrUnavailable)
