package etcd

import (
	"errors"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// TestCommitFence checks that a commit with an unknown outcome is never applied after a later commit.
func TestCommitFence(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Endpoints: []string{shared.endpoint(t)}, Prefix: t.Name(), TTL: time.Minute})
	f := followWatch(t, s, "")
	ctx := t.Context()
	for round, value := range []string{"a", "b", "c"} {
		epoch, err := s.currentEpoch(ctx) // a commit whose request is delayed
		if err != nil || epoch.number != round {
			t.Fatalf("epoch %+v, %v", epoch, err)
		}
		s.markUnknown(epoch)
		mustCommit(t, s, owned("k", value), put("p", value))
		f.await(map[string]string{"k": value, "p": value})
		late := []coord.Op{owned("k", "late")}
		if _, result, err := s.transact(ctx, epoch, nil, late, nil, false); result != notApplied ||
			!errors.Is(err, errEpochEnded) {
			t.Errorf("round %d: a late commit: %v, %v", round, result, err)
		}
		s.markUnknown(epoch) // a late report of the unknown outcome has no effect
	}
	// A commit that is in flight when the epoch ends begins again in the new one.
	now, err := s.currentEpoch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.markUnknown(now)
	mustCommit(t, s, owned("k", "d"))
	// An epoch that was begun without getting an answer is found.
	before := s.commitFence.current
	s.markUnknown(before)
	if _, err := s.currentEpoch(ctx); err != nil {
		t.Fatal(err)
	}
	passed := s.commitFence.current
	s.commitFence.current, s.commitFence.mustAdvance = before, true
	if again, err := s.currentEpoch(ctx); err != nil || again != passed {
		t.Errorf("epoch %+v, %v; want %+v", again, err, passed)
	}
	f.await(map[string]string{"k": "d", "p": "c"})
	if _, err := s.Commit(ctx, []coord.Guard{{Key: "k"}}, []coord.Op{put("p", "x")}); !errors.Is(err, coord.ErrConflict) {
		t.Errorf("a guard that fails: %v", err)
	}
	// Without its lease the session has no epoch, and a commit reports the lost session.
	if _, err := s.cli.Revoke(ctx, s.lease); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx, nil, []coord.Op{owned("k", "e")}); !errors.Is(err, coord.ErrSessionLost) {
		t.Errorf("without a session: %v", err)
	}
}
