package rounds

import "testing"

// TestQuarantinedNodesAreUsed checks that a node that was lost too often is kept out only while the job can run without
// it.
func TestQuarantinedNodesAreUsed(t *testing.T) {
	pair := jobWith(func(j *Job) { j.Max = 2 })
	staticPair := jobWith(func(j *Job) { j.Max, j.Static = 2, true })
	// lost is a job of two nodes, one of which was lost three times.
	lost := []step{
		{0, "a ready; b ready", "job, round 0: a b (0), run0: a b"},
		{1, "b gone; a ready", "halt0: a"},
		{2, "b2 ready +id=b", "round 1: a b2 (0), run1: a b2"},
		{3, "b2 gone; a ready", "halt1: a"},
		{4, "b3 ready +id=b", "round 2: a b3 (0), run2: a b3"},
		{5, "b3 gone; a ready", "halt2: a"},
	}
	playAll(t, []leaderTest{
		{"a needed node is used, after a pause that grows", pair, after(lost,
			step{6, "b4 ready +id=b", ""},
			step{6.9, "", ""},
			step{7, "", "round 3: a b4 (0), run3: a b4"},
			step{8, "b4 gone; a ready", "halt3: a"},
			step{9, "b5 ready +id=b", ""},
			step{10.9, "", ""},
			step{11, "", "round 4: a b5 (0), run4: a b5"},
		)},
		{"another node comes during the pause", pair, after(lost,
			step{6, "b4 ready +id=b", ""},
			step{6.5, "c ready", "round 3: a c (0), wait: b4, run3: a c"},
		)},
		{"a node that is not needed is not used", defaultJob(), []step{
			{0, "a ready; b ready; c ready", "job, round 0: a b c (0), run0: a b c"},
			{1, "b gone; a ready; c ready", "round 1: a c (0), run1: a c"},
			{2, "b2 ready +id=b", "halt1: a c"},
			{3, "a ready; c ready", "round 2: a c b2 (0), run2: a b2 c"},
			{4, "b2 gone; a ready; c ready", "round 3: a c (0), run3: a c"},
			{5, "b3 ready +id=b", "halt3: a c"},
			{6, "a ready; c ready", "round 4: a c b3 (0), run4: a b3 c"},
			{7, "b3 gone; a ready; c ready", "round 5: a c (0), run5: a c"},
			{8, "b4 ready +id=b", "wait: b4"},
			{20, "c gone; a ready", "halt5: a, notice: b4"}, // now it is needed
			{20.9, "", ""},
			{21, "", "round 6: a b4 (0), run6: a b4"},
		}},
		{"static ranks", staticPair, []step{
			{0, "a ready +hint=0; b ready +hint=1", "job, round 0: a b (0), run0: a b"},
			{1, "b gone; a ready", "halt0: a"},
			{2, "b2 ready +id=b +hint=1", "round 1: a b2 (0), run1: a b2"},
			{3, "b2 gone; a ready", "halt1: a"},
			{4, "b3 ready +id=b +hint=1", "round 2: a b3 (0), run2: a b3"},
			{5, "b3 gone; a ready", "halt2: a"},
			{6, "b4 ready +id=b +hint=1", ""},
			{7, "", "round 3: a b4 (0), run3: a b4"},
		}},
		{"another leader takes over during the pause", pair, after(lost,
			step{6, "b4 ready +id=b", ""},
			step{6.5, "new leader", "halt2: a, wait: b4"},
			step{7.5, "", "round 3: a b4 (0), run3: a b4"},
		)},
	})
}
