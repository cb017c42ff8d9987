package rounds

import "testing"

// The leader counts the nodes that would be in the next round, and forgets them with the run.
func TestLeaderCountsWaitingNodes(t *testing.T) {
	j := jobWith(func(j *Job) { j.Max, j.Grow = 4, GrowNextRestart })
	s := play(t, j, twoNodeRound)
	for _, st := range []struct {
		step
		waiting int
	}{
		{step{2, "c ready", "wait: c"}, 1},
		{step{3, "d ready; e ready", "wait: d e"}, 2},
		{step{4, "new leader", "wait: c d e, run0: a b"}, 2},
		{step{5, "d gone", ""}, 2},
		{step{6, "e gone", ""}, 1},
		{step{7, "a failing 1", "halt0: a b"}, 0},
		{step{8, "b ready; a ready", "round 1: a b c (1), run1: a b c"}, 0},
		{step{9, "d ready", "wait: d"}, 1},
		{step{10, "a done; b done; c done", "result: succeeded, forget job, end: a b c d"}, 0},
	} {
		s.playMore([]step{st.step})
		if s.waiting != st.waiting {
			t.Errorf("%v: %d nodes wait, want %d", st.step, s.waiting, st.waiting)
		}
	}
}
