package rounds

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGivenUp checks what the outcome of a job that was given up says of the nodes that were missing.
func TestGivenUp(t *testing.T) {
	static := jobWith(func(j *Job) { j.Static, j.Max = true, 2 })
	for _, tt := range []struct {
		name  string
		job   Job
		steps []step
		want  string
	}{
		{
			"too few", defaultJob(), []step{
				{0, "a ready", "job"},
				{60, "", "result: timeout, forget job, end: a"},
			}, "1 of at least 2 nodes were there, and no more came in 1m",
		},
		{
			"one static rank twice", static, []step{
				{0, "a ready +hint=0; b ready +hint=0", "job"},
				{60, "", "result: timeout, forget job, end: a b"},
			}, "2 of 2 nodes were there, and no more came in 1m, missing node ranks 1; " +
				"2 nodes have node rank 0, on a, b: give each node its own --node-rank from 0 to 1",
		},
		{
			"static nodes without ranks", static, []step{
				{0, "a ready; b ready", "job"},
				{60, "", "result: timeout, forget job, end: a b"},
			}, "2 of 2 nodes were there, and no more came in 1m, missing node ranks 0-1; " +
				"no node rank is given on a, b: give each node its own --node-rank from 0 to 1",
		},
		{
			"a node that had finished and is gone", defaultJob(), after(twoNodeRound,
				step{2, "b done", ""},
				step{3, "b gone; a failing 1", "halt0: a"},
				step{4, "a ready", ""},
				step{64, "", "result: timeout, forget job, end: a"},
			), "1 of at least 2 nodes were there, and no more came in 1m; b (node rank 1) had finished and may have left " +
				"with success; whether it comes back is not known: if it has left, start the job again on all nodes",
		},
		{
			"a node that was lost", defaultJob(), after(twoNodeRound,
				step{2, "b gone", "halt0: a"},
				step{3, "a ready", ""},
				step{63, "", "result: timeout, forget job, end: a"},
			), "1 of at least 2 nodes were there, and no more came in 1m; b (node rank 1) was lost",
		},
		{
			"the job has lost its store before it had a round", defaultJob(), []step{
				{0, "a ready +idle", "job"},
				{60, "", "result: timeout, forget job, end: a"},
			}, "1 of at least 2 nodes were there, and no more came in 1m",
		},
		{
			"the job has lost its store", defaultJob(), []step{
				{0, "a ready +earlier", "job"},
				{60, "", "result: timeout, forget job, end: a"},
			}, "1 of at least 2 nodes were there, and no more came in 1m; nodes that had finished before the job lost its " +
				"store may have left with success: if so, start the job again on all nodes",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := play(t, tt.job, tt.steps)
			if diff := cmp.Diff(tt.want, s.l.outcome.Text); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestReplaced checks the answer to an agent that another one has replaced.
func TestReplaced(t *testing.T) {
	for name, tt := range map[string]struct {
		steps []step
		want  string
	}{
		"without a rank": {
			[]step{{0, "a ready", "job"}, {1, "b ready +id=a", "replace: a"}},
			"another agent has come for this node, on b",
		},
		"with the same rank": {
			[]step{{0, "a ready +hint=0", "job"}, {1, "b ready +id=a +hint=0", "replace: a"}},
			"another agent has come with the same node rank, 0, on b, not on a: if both are nodes of the job, " +
				"give each node its own --node-rank",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, play(t, defaultJob(), tt.steps).answerTo("a").Note); diff != "" {
				t.Error(diff)
			}
		})
	}
}
