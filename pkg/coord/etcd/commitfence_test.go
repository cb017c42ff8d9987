package etcd

import (
	"errors"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// A commit whose outcome is not known is not done after a later one, however late it comes.
func TestTurns(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Endpoints: []string{shared.endpoint(t)}, Prefix: t.Name(), TTL: time.Minute})
	f := followWatch(t, s, "")
	ctx := t.Context()
	for round, value := range []string{"a", "b", "c"} {
		begun, err := s.currentEpoch(ctx) // a commit takes its turn, and its request is held up
		if err != nil || begun.number != round {
			t.Fatalf("turn %+v, %v", begun, err)
		}
		s.markUnknown(begun)
		mustCommit(t, s, owned("k", value), put("p", value))
		f.await(map[string]string{"k": value, "p": value})
		late := []coord.Op{owned("k", "late")}
		if _, done, err := s.transact(ctx, begun, nil, late, nil, false); done != notApplied || !errors.Is(err, errEpochEnded) {
			t.Errorf("round %d: a late commit: %v, %v", round, done, err)
		}
		s.markUnknown(begun) // it says so late, too, which is of no interest any more
	}
	// One that is under way when the turn passes begins anew.
	now, err := s.currentEpoch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.markUnknown(now)
	mustCommit(t, s, owned("k", "d"))
	// What has passed the turn, and got no answer, is found.
	before := s.commitFence.current
	s.markUnknown(before)
	if _, err := s.currentEpoch(ctx); err != nil {
		t.Fatal(err)
	}
	passed := s.commitFence.current
	s.commitFence.current, s.commitFence.mustAdvance = before, true
	if again, err := s.currentEpoch(ctx); err != nil || again != passed {
		t.Errorf("turn %+v, %v; want %+v", again, err, passed)
	}
	f.await(map[string]string{"k": "d", "p": "c"})
	if _, err := s.Commit(ctx, []coord.Guard{{Key: "k"}}, []coord.Op{put("p", "x")}); !errors.Is(err, coord.ErrConflict) {
		t.Errorf("a guard that fails: %v", err)
	}
	// When the lease is gone, so is the turn, and a commit says what is the matter.
	if _, err := s.cli.Revoke(ctx, s.lease); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx, nil, []coord.Op{owned("k", "e")}); !errors.Is(err, coord.ErrSessionLost) {
		t.Errorf("without a session: %v", err)
	}
}
