package rounds

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

func TestLeader(t *testing.T) {
	quarantining := jobWith(func(j *Job) { j.MaxNodeLosses, j.Grow = 1, GrowNextRestart })
	spaced := jobWith(func(j *Job) { j.MaxRestarts, j.MinUptime = 9, 5*time.Second })
	noRestarts := jobWith(func(j *Job) { j.MaxRestarts = 0 })
	fourNodes := jobWith(func(j *Job) { j.Max = 4 })
	growNextRestart := jobWith(func(j *Job) { j.Grow = GrowNextRestart })
	playAll(t, []leaderTest{
		{"the first round begins at once with the maximum", defaultJob(), threeNodeRound},
		{"the first round begins at once with all expected nodes", jobWith(func(j *Job) { j.Expected = 2 }), []step{
			{0, "a ready", "job"},
			{0.1, "b ready", "round 0: a b (0), run0: a b"},
		}},
		{"the first round begins after the last call, even if a node joins", jobWith(func(j *Job) { j.Max = 9 }), []step{
			{0, "a ready", "job"},
			{5, "b ready", "notice: a"},
			{5.9, "c ready", ""},
			{6, "", "round 0: a b c (0), run0: a b c"},
		}},
		{"below min the last call is canceled", defaultJob(), []step{
			{0, "a ready; b ready", "job"},
			{0.9, "b gone", ""},
			{1.5, "c ready", ""},
			{2.4, "", ""},
			{2.5, "", "round 0: a c (0), run0: a c"},
		}},
		{"too few nodes for the first round end the run", defaultJob(), []step{
			{0, "a ready", "job"},
			{59, "", "notice: a"},
			{60, "", "result: timeout, forget job, end: a"},
			{61, "b ready", "wait: b"},
		}},
		{"a failure is charged once all have stopped", defaultJob(), after(twoNodeRound,
			step{5, "a failing 2", "halt0: a b"},
			step{5.1, "b failing 1 +old=1", ""},
			step{6, "a ready", ""},
			step{7, "b ready", "round 1: a b (1), run1: a b"},
			step{7.1, "a busy; b busy", ""},
			step{20, "b failing 1", "halt1: a b"},
			step{21, "a ready; b ready", "result: failed by b, forget job, end: a b"},
		)},
		{"a program that cannot be executed on one node ends the job in its first round", defaultJob(), after(threeNodeRound,
			step{5, "a failing 1 +final", "halt0: a b c"},
			step{6, "a ready; b ready; c ready", "result: failed by a, forget job, end: a b c"},
		)},
		{"a newcomer that lacks the program is quarantined", defaultJob(), after(twoNodeRound,
			step{5, "c ready", "halt0: a b"},
			step{6, "a ready; b ready", "round 1: a b c (0), run1: a b c"},
			step{7, "a busy; b busy; c failing 1 +final", "halt1: a b c"},
			step{8, "a ready; b ready; c ready", "round 2: a b (0), wait: c, run2: a b"},
		)},
		{"a program that no node can execute ends the job in any round", defaultJob(), after(twoNodeRound,
			step{5, "a failing 1", "halt0: a b"},
			step{6, "a ready; b ready", "round 1: a b (1), run1: a b"},
			step{7, "a failing 1 +final; b failing 1 +final", "halt1: a b"},
			step{8, "a ready; b ready", "result: failed by a beside b, forget job, end: a b"},
		)},
		{"a program that cannot be executed is not charged if the membership changes", defaultJob(), after(threeNodeRound,
			step{5, "a failing 1 +final", "halt0: a b c"},
			step{6, "a ready; b ready", ""},
			step{8, "c gone", "round 1: a b (0), run1: a b"},
		)},
		{"a node's last report counts", noRestarts, after(threeNodeRound,
			step{5, "a failing 1", "halt0: a b c"},
			step{5.1, "b failing 1", ""},
			step{6, "a ready +grade=3; b ready; c ready", "result: failed by b beside a, forget job, end: a b c"},
		)},
		{"a stopped worker may be the cause", noRestarts, after(threeNodeRound,
			step{5, "a failing 3", "halt0: a b c"},
			step{6, "a ready; b ready +shown=1; c ready", "result: failed by b beside a, forget job, end: a b c"},
		)},
		{"a new leader learns of all failures again", noRestarts, after(threeNodeRound,
			step{5, "a failing 3", "halt0: a b c"},
			step{6, "a ready; b ready +shown=1", ""},
			step{7, "new leader; c ready", "result: failed by b beside a, forget job, end: a b c"},
		)},
		{"what a stopped worker had shown is no failure", noRestarts, after(twoNodeRound,
			step{5, "c ready", "halt0: a b"},
			step{6, "a ready +shown=1 +old=3; b ready", "round 1: a b c (0), run1: a b c"},
		)},
		{"the cause is the one with the best evidence, then the first", noRestarts, after(threeNodeRound,
			step{5, "a failing 2 +old=4", "halt0: a b c"},
			step{5.1, "b failing 1 +old=0.5; c failing 1 +old=1", ""},
			step{6, "a ready; b ready; c ready", "result: failed by c beside b beside a, forget job, end: a b c"},
		)},
		{"failures after a loss are not charged", noRestarts, after(threeNodeRound,
			step{5, "a failing 2; b failing 2", "halt0: a b c"},
			step{6, "a ready; b ready", ""},
			step{8, "c gone", "round 1: a b (0), run1: a b"},
		)},
		{"failures after a node leaves are not charged", noRestarts, after(threeNodeRound,
			step{5, "c busy +leaving", "halt0: a b c"},
			step{5.1, "a failing 2", ""},
			step{6, "a ready; b ready", ""},
			step{8, "c gone", "round 1: a b (0), run1: a b"},
		)},
		{"failures are not charged if a node lost contact with the store", noRestarts, after(threeNodeRound,
			step{5, "a failing 2; b ready", "halt0: a b c"},
			step{6, "a ready; c ready +silent", "round 1: a b c (0), run1: a b c"},
		)},
		{"a node that does not stop is left out, and is a spare once it has stopped", growNextRestart, after(threeNodeRound,
			step{5, "a failing 1", "halt0: a b c"},
			step{6, "a ready; b ready", ""},
			step{14.9, "", "notice: a b"},
			step{15, "", "round 1: a b (0), run1: a b"},
			step{16, "c ready", "wait: c"},
		)},
		{"growth: at once with all nodes", defaultJob(), after(twoNodeRound,
			step{5, "c ready", "halt0: a b"},
		)},
		{"growth: the first newcomer waits for others", fourNodes, after(twoNodeRound,
			step{5, "c ready", ""},
			step{5.4, "", ""},
			step{5.5, "", "halt0: a b"},
			step{6, "a ready; b failing 2", ""},
			step{6.1, "b ready", "round 1: a b c (0), run1: a b c"},
		)},
		{"growth: an earlier failure is charged", defaultJob(), after(twoNodeRound,
			step{5, "c ready", "halt0: a b"},
			step{5.1, "a failing 1 +old=0.2", ""},
			step{6, "a ready; b ready", "round 1: a b c (1), run1: a b c"},
		)},
		{"growth: the newcomer leaves before the round ends for it", fourNodes, after(twoNodeRound,
			step{5, "c ready", ""},
			step{5.4, "c gone", ""},
			step{5.5, "", ""},
			step{6, "d ready", ""},
			step{6.4, "", ""},
			step{6.5, "", "halt0: a b"},
		)},
		{"growth: not before the next restart", growNextRestart, after(twoNodeRound,
			step{5, "c ready", "wait: c"},
			step{6, "a failing 1", "halt0: a b"},
			step{7, "a ready; b ready", "round 1: a b c (1), run1: a b c"},
		)},
		{"growth: never", jobWith(func(j *Job) { j.Grow = GrowNever }), after(twoNodeRound,
			step{5, "c ready", "wait: c"},
			step{6, "a failing 1", "halt0: a b"},
			step{7, "a ready; b ready", "round 1: a b (1), wait: c, run1: a b"},
		)},
		{"multiples: nodes wait until a round can have one more multiple", jobWith(func(j *Job) {
			j.Min, j.Max, j.Multiple = 2, 6, 2
		}), after(twoNodeRound,
			step{5, "c ready", "wait: c"},
			step{6, "d ready", ""},
			step{6.5, "", "halt0: a b"},
			step{7, "a ready; b ready", "round 1: a b c d (0), run1: a b c d"},
			step{8, "a busy; b busy; c busy; d busy", ""},
			step{20, "d gone", "halt1: a b c"},
			step{21, "a ready; b ready; c ready", "round 2: a b (0), wait: c, run2: a b"},
		)},
		{"a spare takes the place of a lost node", defaultJob(), after(threeNodeRound,
			step{3, "d ready", "wait: d"},
			step{5, "b gone", "halt0: a c"},
			step{6, "a ready; c ready", "round 1: a d c (0), run1: a c d"},
		)},
		{"a node that comes back takes its rank before a spare", defaultJob(), after(threeNodeRound,
			step{3, "d ready", "wait: d"},
			step{5, "b gone", "halt0: a c"},
			step{5.5, "a ready; b2 ready +id=b", ""},
			step{6, "c ready", "round 1: a b2 c (0), wait: d, run1: a b2 c"},
		)},
		{"a node that was lost too often is quarantined", quarantining, after(threeNodeRound,
			step{5, "c gone; a ready; b ready", "round 1: a b (0), run1: a b"},
			step{5.5, "a busy; b busy; c2 ready +id=c", "wait: c2"},
			step{605, "", "notice: c2"}, // for another reason: its quarantine has ended
			step{610, "a failing 1", "halt1: a b"},
			step{611, "a ready; b ready", "round 2: a b c2 (1), run2: a b c2"},
		)},
		{"other parameters are refused", defaultJob(), after(twoNodeRound,
			step{5, "c ready +max=4", "refuse: c"},
			step{9, "", ""},
		)},
		{"success", defaultJob(), after(twoNodeRound,
			step{5, "a done", ""},
			step{6, "c ready", "wait: c"},
			step{7, "b done", "result: succeeded, forget job, end: a b c"},
			step{8, "d ready", "late refuse: d"},
		)},
		{"a node whose workers have succeeded may leave", defaultJob(), after(twoNodeRound,
			step{5, "a done", ""},
			step{6, "a gone", ""},
			step{7, "b done", "result: succeeded, forget job, end: b"},
		)},
		{"a failure after others have succeeded restarts all", defaultJob(), after(twoNodeRound,
			step{5, "a done", ""},
			step{6, "b failing 1", "halt0: a b"},
			step{6.1, "a done", ""}, // repeated
			step{7, "b ready", ""},
			step{8, "a ready", "round 1: a b (1), run1: a b"},
		)},
		{"below min: the leader waits for other nodes", defaultJob(), after(twoNodeRound,
			step{5, "b gone", "halt0: a"},
			step{6, "a ready", ""},
			step{60, "", "notice: a"},
			step{65, "c ready", "round 1: a c (0), run1: a c"},
		)},
		{"below min: once there are enough nodes again, the leader waits for more", defaultJob(), after(threeNodeRound,
			step{5, "a gone; b gone", "halt0: c"},
			step{6, "c ready", ""},
			step{65, "d ready", "notice: c"},
			step{65.4, "", ""},
			step{65.5, "", "round 1: d c (0), run1: c d"},
		)},
		{"below min for too long: the run ends", defaultJob(), after(twoNodeRound,
			step{5, "b gone", "halt0: a"},
			step{6, "a ready", ""},
			step{66, "", "result: timeout, forget job, end: a"},
		)},
		{"short rounds are spaced, from the second failure on", spaced, after(threeNodeRound,
			step{1, "a failing 1; b ready; c ready", "halt0: a b c"},
			step{2, "a ready", "round 1: a b c (1), run1: a b c"},
			step{3, "a failing 1; b ready; c ready", "halt1: a b c"},
			step{4, "a ready", ""},
			step{4.9, "", ""},
			step{5, "", "round 2: a b c (2), run2: a b c"},
			step{6, "a failing 1; b ready; c ready", "halt2: a b c"},
			step{7, "a ready", ""},
			step{9, "", "round 3: a b c (3), run3: a b c"},
			step{20, "a failing 1; b ready; c ready", "halt3: a b c"},
			step{21, "a ready", "round 4: a b c (4), run4: a b c"},
		)},
		{"another agent for the same node: the older one is replaced when it has stopped", defaultJob(), after(twoNodeRound,
			step{5, "b2 ready +id=b", "replace: b, halt0: a"},
			step{6, "a ready", ""},
			step{7, "b gone", "round 1: a b2 (0), run1: a b2"},
		)},
		{"another agent for a node whose workers have succeeded: the round goes on", defaultJob(), after(twoNodeRound,
			step{5, "b done", ""},
			step{6, "b2 ready +id=b", "replace: b, wait: b2"},
			step{7, "b gone", ""},
			step{8, "a done", "result: succeeded, forget job, end: a b2"},
		)},
		{"an agent does not respond while the others do: the round ends", defaultJob(), after(twoNodeRound,
			step{5, "b busy +stuck", ""},
			step{7.4, "", ""},
			step{7.5, "", "halt0: a b"},
			step{8, "a ready; c ready", ""},
			step{17.4, "", "notice: a c"},
			step{17.5, "", "round 1: a c (0), run1: a c"},
			step{40, "b ready", "halt1: a c"},
		)},
		{"an agent responds again after the round was ended for it: no charge", defaultJob(), after(twoNodeRound,
			step{5, "b busy +stuck", ""},
			step{7.5, "", "halt0: a b"},
			step{8, "a failing 2", ""},
			step{9, "a ready; b ready", "round 1: a b (0), run1: a b"},
		)},
		{"the last active agent does not respond: the next round begins without it", defaultJob(), after(twoNodeRound,
			step{5, "a done", ""},
			step{6, "b busy +stuck", ""},
			step{8.5, "", "halt0: a b"},
			step{9, "a ready; c ready", ""},
			step{18.5, "", "round 1: a c (0), run1: a c"},
		)},
		{"no agent responds, or all do again: the round goes on", defaultJob(), after(twoNodeRound,
			step{5, "b busy +stuck", ""},
			step{7, "a busy +stuck", ""},
			step{20, "", ""},
			step{21, "a busy; b busy", ""},
			step{60, "", ""},
			step{61, "b busy +stuck", ""},
			step{62, "b done", ""},
			step{90, "a done", "result: succeeded, forget job, end: a b"},
		)},
		{"closed by an agent", defaultJob(), after(twoNodeRound,
			step{5, "b busy +close", "result: closed, forget job, end: a b"},
		)},
		{"static: ranks as given, none may be missing", jobWith(func(j *Job) { j.Static, j.Min = true, 3 }), []step{
			{0, "a ready +hint=2; b ready +hint=0; c ready", "job"},
			{9, "", "notice: a b c"},
			{10, "d ready +hint=1", "round 0: b d a (0), wait: c, run0: a b d"},
		}},
		{"all nodes have left: an agent with other parameters starts again", defaultJob(), after(twoNodeRound,
			step{5, "a gone; b gone", ""},
			step{6, "c ready +max=2", "job, forget job"},
			step{7, "d ready +max=2", "round 1: c d (0), run1: c d"},
		)},
	})
}

// TestLeaderGivesReasons checks that a refusal names both values, and that a Halt names its cause.
func TestLeaderGivesReasons(t *testing.T) {
	s := play(t, defaultJob(), after(twoNodeRound,
		step{5, "c ready +max=4; d ready +hint=1", "refuse: c, halt0: a b"},
	))
	for id, want := range map[string]string{
		"c": "the maximum of --nnodes is 4 on this node and 3 in the job: give the same on all nodes",
		"a": "a node has come",
	} {
		if got := s.answerTo(id).Note; !strings.Contains(got, want) {
			t.Errorf("the answer to %s says %q, want %q", id, got, want)
		}
	}
}

// TestLeaderObservesInConstantTime checks that the cost of an event does not depend on the number of agents.
func TestLeaderObservesInConstantTime(t *testing.T) {
	cost := func(n int) (allocs float64, writes int) {
		job := defaultJob()
		job.Min, job.Max = n, n
		l := NewLeader(1, SavedState{}, 0)
		report := func(i int, phase Phase) {
			r := Report{Job: job, Node: Node{Host: "h", Identity: strconv.Itoa(i), Nproc: 1}, Phase: phase, Fence: Fence{}}
			if phase != Ready {
				r.Fence = l.fence()
			}
			l.Observe(0, coord.SessionID(strconv.Itoa(i)), coord.Revision(i+2), &r)
		}
		for i := range n + 1 { // and a spare
			report(i, Ready)
		}
		l.Decide(0)
		for i := range n {
			report(i, Busy)
		}
		out, _, _ := l.Decide(0)
		writes = len(out)
		busy := l.participants.byID["3"].report
		ready := l.participants.byID[coord.SessionID(strconv.Itoa(n))]
		again := ready.report
		allocs = testing.AllocsPerRun(100, func() {
			l.Observe(0, "3", 5, &busy)
			l.Observe(0, ready.id, ready.arrived, &again)
			out, _, _ := l.Decide(0)
			writes += len(out)
		})
		return allocs, writes
	}
	few, writes := cost(300)
	many, manyWrites := cost(3000)
	if many > few+2 || writes != 0 || manyWrites != 0 { // a comparison of all parameters makes 28 allocations
		t.Errorf("%v allocations and %d writes with 300 agents, %v and %d with 3,000", few, writes, many, manyWrites)
	}
}
