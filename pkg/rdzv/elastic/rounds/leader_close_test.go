package rounds

import "testing"

func TestLeaderCloses(t *testing.T) {
	playAll(t, []leaderTest{
		{"a first report may ask for it", defaultJob(), []step{
			{0, "a ready +close", "job, result: closed, forget job, end: a"},
		}},
		{"success in the same batch wins", defaultJob(), after(twoNodeRound,
			step{5, "a done", ""},
			step{6, "b busy +close; b done", "result: succeeded, forget job, end: a b"},
		)},
		{"an agent that another one has replaced closes nothing", defaultJob(), after(twoNodeRound,
			step{5, "c ready +id=a", "replace: a, halt0: b"},
			step{6, "a busy +close", ""},
		)},
		{"an agent that does not fit closes nothing", defaultJob(), after(twoNodeRound,
			step{5, "c ready +max=9 +close", "refuse: c"},
		)},
		{"a halted round", defaultJob(), after(twoNodeRound,
			step{5, "a failing 1", "halt0: a b"},
			step{6, "b busy +close", "result: closed, forget job, end: a b"},
		)},
	})
}
