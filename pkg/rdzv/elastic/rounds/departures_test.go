package rounds

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// departed is a running round of a, b and c, of which a has left the exit barrier.
var departed = after(threeNodeRound,
	step{1, "a done", ""},
	step{3, "a done +departing", "departed 0/0, depart: a"},
)

func TestLeaderDepartures(t *testing.T) {
	playAll(t, []leaderTest{
		{"the job succeeds without the node that has left", defaultJob(), after(departed,
			step{3.1, "a gone", ""},
			step{4, "b done; c done", "result: succeeded, forget job, forget departed/0/0, end: b c"},
		)},
		{"the last node that asks to leave learns that the job has succeeded", defaultJob(), after(departed,
			step{3.1, "a gone; b done", ""},
			step{4, "c done +departing", "result: succeeded, forget job, forget departed/0/0, end: b c"},
		)},
		{"nothing is granted while workers of the node run", defaultJob(), after(threeNodeRound,
			step{1, "a busy +departing", ""},
			step{2, "a done", "departed 0/0, depart: a"},
		)},
		{"a stop of the round wins over a departure in the same batch", defaultJob(), after(threeNodeRound,
			step{1, "a done", ""},
			step{2, "a done +departing; b failing 1", "halt0: a b c"},
			step{2.1, "a done", ""},
		)},
		{"a failure after a departure ends the job", defaultJob(), after(departed,
			step{4, "b failing 1", "halt0: b c"},
			step{5, "b ready; c ready", "result: failed by b, forget job, forget departed/0/0, end: b c"},
			step{6, "a gone; b gone; c gone", ""},
		)},
		{"a node that is lost after a departure ends the job", defaultJob(), after(departed,
			step{4, "a gone; b gone", "halt0: c"},
			step{5, "c ready", "result: node_lost, forget job, forget departed/0/0, end: c"},
		)},
		{"a later leader knows of the departure", defaultJob(), after(departed,
			step{4, "a gone", ""},
			step{5, "new leader", "run0: b c"},
			step{5.1, "b busy; c busy", ""},
			step{6, "b done; c done", "result: succeeded, forget job, forget departed/0/0, end: b c"},
		)},
		{"a later leader confirms the departure again", defaultJob(), after(departed,
			step{5, "new leader", "run0: b c, depart: a"},
			step{6, "a gone; b done; c done", "result: succeeded, forget job, forget departed/0/0, end: b c"},
		)},
		{"a later leader that finds nobody else ends the job", defaultJob(), after(departed,
			step{4, "a gone", ""},
			step{5, "b gone; c gone; new leader", "result: node_lost, forget job, forget departed/0/0"},
		)},
		{"a new agent for the node that has left does not end the round", defaultJob(), after(departed,
			step{4, "a gone; d ready +id=a", "wait: d"},
			step{5, "b done; c done", "result: succeeded, forget job, forget departed/0/0, end: b c d"},
		)},
		{"without a departure the nodes that finished run again", defaultJob(), after(threeNodeRound,
			step{1, "a done", ""},
			step{2, "b failing 1", "halt0: a b c"},
			step{3, "a ready; b ready; c ready", "round 1: a b c (1), run1: a b c"},
		)},
	})
}

// A node at the exit barrier whose session was lost waits in a new session, until the round that it finished is over.
func TestLeaderFinishedElsewhere(t *testing.T) {
	lost := after(threeNodeRound,
		step{1, "a done", ""},
		step{3, "a gone", ""},
		step{4, "d done +id=a +from=0", ""},
	)
	playAll(t, []leaderTest{
		{"the job succeeds", defaultJob(), after(lost,
			step{5, "b done; c done", "result: succeeded, forget job, end: b c d"},
		)},
		{"the round is run again", defaultJob(), after(lost,
			step{5, "b failing 1", "halt0: b c d"},
			step{6, "b ready; c ready; d ready +id=a", "round 1: d b c (0), run1: b c d"},
		)},
		{"a failure is charged although a node that had finished is gone", defaultJob(), after(threeNodeRound,
			step{1, "b done", ""},
			step{3, "b gone; c failing 1", "halt0: a c"},
			step{4, "a ready; c ready", "round 1: a c (1), run1: a c"},
		)},
		{"the node came back after the round had ended", defaultJob(), after(threeNodeRound,
			step{1, "a done", ""},
			step{3, "a gone; b failing 1", "halt0: b c"},
			step{4, "b ready; d done +id=a +from=0", "halt0: d"},
			step{5, "c ready", "round 1: b c (0), halt1: d, run1: b c"},
		)},
		{"another store runs the job again", defaultJob(), []step{
			{0, "a done +from=-1", "job, halt-1: a"},
			{1, "a ready; b ready", ""},
			{2, "", "round 0: a b (0), run0: a b"},
		}},
	})
}

func TestMemberDepartures(t *testing.T) {
	finished := []memberStep{
		{0, "enter", "ready 0/0"},
		{1, "run 1 4", "run 4, busy 1/4"},
		{3, "succeed", "done 1/4 up 2s"},
		{8, "proof 8", ""},
	}
	for _, tt := range []struct {
		name  string
		steps []memberStep
	}{
		{"the leader confirms", []memberStep{
			{9, "depart", "done 1/4 up 2s departing"},
			{9, "depart 1 4", "over: departed so"},
		}},
		{"the leader does not answer", []memberStep{
			{9, "depart", "done 1/4 up 2s departing"},
			{12, "unconfirmed", "over: departed "},
		}},
		{"a halt comes first", []memberStep{
			{9, "halt 1 4; depart", "stop 4 in 11s"},
			{9, "unconfirmed; depart 1 4", ""},
			{10, "enter", "ready 1/4"},
		}},
		{"a halt answers", []memberStep{
			{9, "depart", "done 1/4 up 2s departing"},
			{9, "halt 1 4; unconfirmed", "stop 4 in 11s"},
			{10, "enter", "ready 1/4"},
		}},
		{"the end answers", []memberStep{
			{9, "depart", "done 1/4 up 2s departing"},
			{9, "end; unconfirmed; depart 1 4", "over: failed"},
		}},
		{"an earlier confirmation does not count", []memberStep{
			{9, "depart 1 3; depart 1 4", ""},
			{9, "depart", "done 1/4 up 2s departing"},
		}},
		{"a silent store is not asked", []memberStep{{17, "depart", "over: departed "}}},
		{"a silent store stops nothing", []memberStep{{90, "", ""}}},
		{"a lost session stops nothing", []memberStep{
			{9, "lost", ""},
			{10, "renewed", "done 1/4 up 9s"},
			{11, "halt 2 5", "stop 4 in 11s"},
		}},
		{"a replaced store stops nothing", []memberStep{
			{9, "lost", ""},
			{10, "replaced; renewed", "done 0/0 up 9s"},
			{11, "halt 1 0", "stop 4 in 11s"},
		}},
		{"a lost store stops nothing", []memberStep{{9, "gone", ""}}},
		{"a refusal stops nothing", []memberStep{{9, "refuse", "over: the job refuses this node: so"}}},
		{"a replacement stops nothing", []memberStep{{9, "replace", "over: rendezvous backend connection: so"}}},
	} {
		t.Run(tt.name, func(t *testing.T) { playMember(t, append(slices.Clip(finished), tt.steps...)) })
	}
}

// The outcome of a job that departed members keep from running again says so.
func TestDepartedOutcome(t *testing.T) {
	for _, tt := range []struct {
		name  string
		steps []step
		want  string
	}{
		{
			"a worker fails",
			[]step{
				{4, "b failing 1", "halt0: b c"},
				{5, "b ready; c ready", "result: failed by b, forget job, forget departed/0/0, end: b c"},
			},
			"not restarted: a (node rank 0) had finished and left",
		},
		{
			"a node is lost",
			[]step{
				{4, "b gone", "halt0: c"},
				{5, "c ready", "result: node_lost, forget job, forget departed/0/0, end: c"},
			},
			"b (node rank 1) was lost, and the job cannot be restarted because a (node rank 0) had finished and left: run it again on all nodes. " +
				"With a longer --exit-barrier-timeout, nodes that finish wait for the others.",
		},
		{
			"a worker fails, and its node is lost",
			[]step{
				{4, "b failing 1", "halt0: b c"},
				{5, "b gone; c ready", "result: failed by b, forget job, forget departed/0/0, end: c"},
			},
			"b (node rank 1) was lost; not restarted: a (node rank 0) had finished and left",
		},
		{
			"a node is lost, and a worker only reports that",
			[]step{
				{4, "c failing 4", "halt0: b c"},
				{5, "b gone; c ready", "result: node_lost, forget job, forget departed/0/0, end: c"},
			},
			"b (node rank 1) was lost, and the job cannot be restarted because a (node rank 0) had finished and left: run it again on all nodes. " +
				"With a longer --exit-barrier-timeout, nodes that finish wait for the others.",
		},
		{
			"a node is told to leave",
			[]step{
				{4, "b busy +leaving", "halt0: b c"},
				{5, "b gone; c ready", "result: node_lost, forget job, forget departed/0/0, end: c"},
			},
			"b (node rank 1) has left, and the job cannot be restarted because a (node rank 0) had finished and left: run it again on all nodes. " +
				"With a longer --exit-barrier-timeout, nodes that finish wait for the others.",
		},
		{
			"a node is lost that the last leader has not seen",
			[]step{
				{4, "a gone; b gone; new leader", "halt0: c"},
				{5, "c ready", "result: node_lost, forget job, forget departed/0/0, end: c"},
			},
			"b (node rank 1) was lost, and the job cannot be restarted because a (node rank 0) had finished and left: run it again on all nodes. " +
				"With a longer --exit-barrier-timeout, nodes that finish wait for the others.",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := play(t, defaultJob(), after(departed, tt.steps...))
			if diff := cmp.Diff(tt.want, s.l.outcome.Text); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A node that has left was there when the job ended, as far as late agents are concerned.
func TestDepartedIsPresentAtTheEnd(t *testing.T) {
	s := play(t, defaultJob(), []step{
		{0, "a ready +launch=L; b ready +launch=L; c ready +launch=L", "job, round 0: a b c (0), run0: a b c"},
		{1, "a done +departing; b busy; c busy", "departed 0/0, depart: a"},
		{2, "a gone", ""},
		{3, "b done; c done", "result: succeeded, forget job, forget departed/0/0, end: b c"},
	})
	if _, present, _ := s.l.history.Finished.command(Node{Identity: "a"}); !present {
		t.Errorf("the node is unknown: %+v", s.l.history.Finished)
	}
}

// After the end of a run, its command may be repeated on the nodes that had left or were lost, too.
func TestRerunAfterDeparture(t *testing.T) {
	ended := after(departed,
		step{4, "a gone; b gone", "halt0: c"},
		step{5, "c ready", "result: node_lost, forget job, forget departed/0/0, end: c"},
		step{6, "c gone", ""},
	)
	playAll(t, []leaderTest{
		{"the node that had left", defaultJob(), after(ended,
			step{7, "a2 ready +id=a", "forget result, past: 1, wait: a2, job"},
		)},
		{"the lost node", defaultJob(), after(ended,
			step{7, "b2 ready +id=b", "forget result, past: 1, wait: b2, job"},
		)},
		{"the lost node, which the last leader has not seen", defaultJob(), after(departed,
			step{4, "a gone; b gone; new leader", "halt0: c"},
			step{5, "c ready", "result: node_lost, forget job, forget departed/0/0, end: c"},
			step{6, "c gone; b2 ready +id=b", "forget result, past: 1, wait: b2, job"},
		)},
		{"a node that finished, and was not heard of again", defaultJob(), after(threeNodeRound,
			step{1, "a done", ""},
			step{2, "a gone; b done; c done", "result: succeeded, forget job, end: b c"},
			step{3, "b gone; c gone; a2 ready +id=a", "forget result, past: 1, wait: a2, job"},
		)},
		{"a lost pod is started again", defaultJob(), []step{
			{
				0, "a ready +launch=L +restarts; b ready +launch=L +restarts; c ready +launch=L +restarts",
				"job, round 0: a b c (0), run0: a b c",
			},
			{1, "a done +departing", "departed 0/0, depart: a"},
			{4, "a gone; b gone; new leader", "halt0: c"},
			{5, "c ready", "result: node_lost, forget job, forget departed/0/0, end: c"},
			{6, "c gone; b2 ready +id=b +launch=L +restarts", "late end: b2"},
		}},
	})
}
