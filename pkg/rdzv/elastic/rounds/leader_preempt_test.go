package rounds

import (
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

func TestLeaderPreempts(t *testing.T) {
	job := jobWith(func(j *Job) { j.PreemptGrace = 20 * time.Second })
	noRestart := jobWith(func(j *Job) { j.PreemptGrace, j.MaxRestarts = 20*time.Second, 0 })
	end := func(how, nodes string) string { return "result: " + how + ", forget job, end: " + nodes }
	preempted := end("preempted", "a b")
	playAll(t, []leaderTest{
		{"one node asks, all nodes save", job, after(twoNodeRound,
			step{10, "b busy +preempt", "preempted, save0: a b"},
			step{11, "a ready", ""},
			step{12, "b ready", preempted},
		)},
		{"a spare asks", job, after(threeNodeRound,
			step{5, "d ready", "wait: d"},
			step{10, "d ready +preempt", "preempted, save0: a b c, notice: d"},
			step{11, "a ready; b ready; c ready", end("preempted", "a b c d")},
		)},
		{"all have finished", job, after(twoNodeRound,
			step{10, "b busy +preempt", "preempted, save0: a b"},
			step{11, "a ready +finished; b ready +finished", end("succeeded", "a b")},
		)},
		{"one has not finished", job, after(twoNodeRound,
			step{10, "b busy +preempt", "preempted, save0: a b"},
			step{11, "a ready +finished; b ready", preempted},
		)},
		{"a node whose workers had exited with 0 has finished if it says so", job, after(twoNodeRound,
			step{9, "a done", ""},
			step{10, "b busy +preempt", "preempted, save0: a b"},
			step{11, "a ready +finished; b ready +finished", end("succeeded", "a b")},
		)},
		{"a node that has finished and left its session has finished", job, after(twoNodeRound,
			step{9, "a done", ""},
			step{9.5, "a gone", ""},
			step{10, "b busy +preempt", "preempted, save0: b"},
			step{11, "b ready +finished", end("succeeded", "b")},
		)},
		{"all were done before", job, after(twoNodeRound,
			step{10, "a done; b done +preempt", "preempted, result: succeeded, forget job, end: a b"},
		)},
		{"before the first round", job, []step{
			{0, "a ready; b ready", "job"},
			{0.5, "a ready +preempt", "preempted, wait: a"},
			{5.4, "", "notice: a b"},
			{5.5, "", "result: preempted, forget job, end: a b"},
		}},
		{"before the first round, and all come", job, []step{
			{0, "a ready", "job"},
			{0.5, "a ready +preempt", "preempted, wait: a"},
			{1.5, "b ready", "wait: b"},
			{2.5, "c ready", "result: preempted, forget job, end: a b c"},
		}},
		{"too few nodes, after a round", job, after(twoNodeRound,
			step{10, "a gone", "halt0: b"},
			step{11, "b ready", ""},
			step{12, "b ready +preempt", "preempted, result: preempted, forget job, end: b"},
		)},
		{"while a round halts: the others learn of it, and have no more time", job, after(twoNodeRound,
			step{10, "a failing 1", "halt0: a b"},
			step{12, "b busy +preempt", "preempted, save0: a b"},
			step{13, "a ready; b ready", preempted},
		)},
		{"a failure before it, and no restart is left", noRestart, after(twoNodeRound,
			step{10, "a failing 1", "halt0: a b"},
			step{12, "b busy +preempt", "preempted, save0: a b"},
			step{13, "a ready; b ready", "result: failed by a, forget job, end: a b"},
		)},
		{"a worker that got the signal before its launcher", noRestart, after(twoNodeRound,
			step{10, "a failing 1", "halt0: a b"},
			step{10.2, "a failing 1 +preempt", "preempted, save0: a b"},
			step{13, "a ready; b ready", preempted},
		)},
		{"the request takes long to arrive", noRestart, after(twoNodeRound,
			step{10, "a failing 1", "halt0: a b"},
			step{25, "a failing 1 +preempt=14.5", "preempted, save0: a b"},
			step{26, "a ready; b ready", preempted},
		)},
		{"failures that follow from it", noRestart, after(twoNodeRound,
			step{10, "b busy +preempt", "preempted, save0: a b"},
			step{11, "a failing 1", ""},
			step{12, "a ready; b ready", preempted},
		)},
		{"two at once", job, after(twoNodeRound,
			step{10, "a busy +preempt; b busy +preempt", "preempted, save0: a b"},
			step{11, "a ready; b ready", preempted},
		)},
		{"newcomers wait", job, after(twoNodeRound,
			step{10, "b busy +preempt", "preempted, save0: a b"},
			step{11, "c ready", "wait: c"},
			step{12, "a ready; b ready", end("preempted", "a b c")},
		)},
		{"another agent of the node does not end the workers that save", job, after(twoNodeRound,
			step{10, "b busy +preempt", "preempted, save0: a b"},
			step{11, "a2 ready +id=a", "wait: a2"},
			step{12, "a ready; b ready", end("preempted", "a a2 b")},
		)},
		{"a node is lost meanwhile", job, after(twoNodeRound,
			step{10, "b busy +preempt", "preempted, save0: a b"},
			step{11, "a gone", ""},
			step{12, "b ready +finished", end("preempted", "b")},
		)},
		{"all are lost: new agents begin the run again", job, after(twoNodeRound,
			step{10, "b busy +preempt", "preempted, save0: a b"},
			step{11, "a gone; b gone", "result: preempted, forget job"},
		)},
		{"a node does not stop: it has the grace and the time of any stop", job, after(twoNodeRound,
			step{10, "b busy +preempt", "preempted, save0: a b"},
			step{11, "b ready", ""},
			step{39.9, "", "notice: b"},
			step{40, "", preempted},
		)},
		{"a new leader", job, after(twoNodeRound,
			step{10, "b busy +preempt", "preempted, save0: a b"},
			step{11, "a failing 1", ""},
			step{12, "new leader", "save0: a b"},
			step{13, "a ready; b ready", preempted},
		)},
		{"a new leader, and nobody is left but a spare", job, after(threeNodeRound,
			step{5, "d ready", "wait: d"},
			step{10, "d ready +preempt", "preempted, save0: a b c, notice: d"},
			step{11, "new leader", "save0: a b c, wait: d"},
			step{12, "a gone; b gone; c gone", "result: preempted, forget job, end: d"},
		)},
		{"a leader that dies before it has halted the round", job, after(twoNodeRound,
			step{10, "new leader; b busy +preempt", "preempted, save0: a b"},
		)},
	})
}

// TestLeaderForgetsPreemption checks that a run that begins again, with the same id, is not preempted.
func TestLeaderForgetsPreemption(t *testing.T) {
	s := play(t, jobWith(func(j *Job) { j.PreemptGrace = time.Second }), after(twoNodeRound,
		step{10, "b busy +preempt", "preempted, save0: a b"},
		step{11, "a ready; b ready", "result: preempted, forget job, end: a b"},
	))
	if _, left := s.store[KeyPreempted]; left {
		t.Error("the preemption is left in the store")
	}
	s.playMore([]step{
		{12, "a gone; b gone", ""},
		{13, "c ready +id=a +launch=2; d ready +id=b +launch=2", "forget result, past: 1, wait: c d, job"},
	})
}

// TestPreemptionText checks what the result says for people.
func TestPreemptionText(t *testing.T) {
	job := jobWith(func(j *Job) { j.PreemptGrace = time.Second })
	s := play(t, job, after(twoNodeRound,
		step{10, "b busy +preempt", "preempted, save0: a b"},
		step{11, "a ready +finished; b ready", "result: preempted, forget job, end: a b"},
	))
	o, _ := s.store[KeyResult].(rdzv.Outcome)
	if want := "b; the workers of 1 of 2 nodes had finished"; o.Text != want {
		t.Errorf("%q, want %q", o.Text, want)
	}
}
