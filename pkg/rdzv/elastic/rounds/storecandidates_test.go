package rounds

import (
	"testing"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// TestInviteWaiting checks that a spare is asked to help to keep the store while too few agents can.
func TestInviteWaiting(t *testing.T) {
	t.Parallel()
	joins := func(s *script, name string) bool {
		a := s.answerTo(name)
		return a.Kind == Wait && a.JoinStore
	}
	for _, tt := range []struct {
		name    string
		invites int
		want    bool
	}{
		{"the members are too few", 4, true},
		{"the members are enough", 3, false},
		{"nobody is asked", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := play(t, defaultJob(), threeNodeRound)
			s.l.storeInvites = tt.invites
			s.l.storeMembers = map[coord.SessionID]bool{"a": true, "b": true, "c": true}
			s.playMore([]step{{1, "d ready", "wait: d"}})
			if got := joins(s, "d"); got != tt.want {
				t.Errorf("the spare is asked: %v, want %v", got, tt.want)
			}
			s.l.storeInvites = 4
			s.playMore([]step{{2, "c gone", "halt0: a b"}, {3, "a ready; b ready", "round 1: a b d (0), run1: a b d"}})
			s.l.storeMembers = map[coord.SessionID]bool{"a": true}
			s.playMore([]step{{3.5, "a busy; b busy; d busy", ""}, {4, "e ready", "wait: e"}})
			if !joins(s, "e") {
				t.Error("a spare is not asked after a member that could help was lost")
			}
		})
	}
}
