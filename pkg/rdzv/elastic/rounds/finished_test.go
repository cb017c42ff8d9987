package rounds

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// newFinishedRun returns a run at whose end these nodes were present.
func newFinishedRun(nodes ...Node) *FinishedRun {
	f := &FinishedRun{Nodes: map[string]int{}}
	for _, n := range nodes {
		f.add(n)
	}
	return f
}

// TestJudgeArrival checks what becomes of an agent that comes to a finished run.
func TestJudgeArrival(t *testing.T) {
	node := func(identity, launch string, restarts bool, command string) Node {
		return Node{Identity: identity, Launch: Launch{launch, restarts}, Command: command}
	}
	hand := func(machine string) Node { return node("machine:"+machine+"/0", "", false, "train") }
	task := func(place, launch string) Node { return node(place+"/0", launch, false, "train") }
	pod := func(place, uid, command string) Node { return node(place+"/0", uid, true, command) }
	byHand := newFinishedRun(hand("a"), hand("b"))
	step := newFinishedRun(task("hint:0", "slurm-7.0"), task("hint:1", "slurm-7.0"))
	steps := newFinishedRun(task("machine:a", "slurm-7.0"), task("machine:b", "slurm-7.1"))
	lost := newFinishedRun(hand("a"))
	lost.addMember("machine:b/0", nil)
	lostPod := newFinishedRun(pod("hint:0", "uid", "train"))
	lostPod.addMember("hint:1/0", nil)
	pods := newFinishedRun(pod("hint:0", "uid", "train"), pod("hint:1", "uid", "train"))
	for _, tt := range []struct {
		name   string
		run    *FinishedRun
		Ending rdzv.Ending // empty: succeeded
		node   Node
		want   ArrivalVerdict
	}{
		{name: "by hand, a node that was present", run: byHand, node: hand("a"), want: StartRerun},
		{
			name: "by hand, another agent on a node that was present",
			run:  byHand, node: node("machine:a/3", "", false, "train"), want: StartRerun,
		},
		{name: "by hand, another script", run: byHand, node: node("machine:b/0", "", false, "other"), want: StartRerun},
		{name: "by hand, a node that was not present", run: byHand, node: hand("c"), want: RefuseArrival},
		{
			name: "by hand, a failed run, a node that was not present",
			run:  byHand, Ending: rdzv.EndFailed, node: hand("c"), want: RefuseArrival,
		},
		{name: "by hand, a node that was lost", run: lost, node: hand("b"), want: StartRerun},
		{
			name: "a job of a scheduler after a run by hand that lost a node",
			run:  lost, node: task("machine:b", "slurm-7.0"), want: StartRerun,
		},
		{name: "a job of a scheduler after a run by hand", run: byHand, node: task("hint:0", "slurm-7.0"), want: StartRerun},
		{name: "a late task of the step", run: step, node: task("hint:2", "slurm-7.0"), want: LearnResult},
		{name: "a second command in the step", run: step, node: task("hint:1", "slurm-7.0"), want: StartRerun},
		{name: "the job was requeued", run: step, node: task("hint:2", "slurm-7.0.r1"), want: StartRerun},
		{name: "the next step", run: step, node: task("hint:1", "slurm-7.1"), want: StartRerun},
		{name: "by hand after a step", run: step, node: hand("c"), want: StartRerun},
		{name: "a step for each node: a late one", run: steps, node: task("machine:c", "slurm-7.2"), want: RefuseArrival},
		{
			name: "a step for each node: another task of one step",
			run:  steps, node: task("machine:c", "slurm-7.1"), want: LearnResult,
		},
		{name: "a step for each node: a rerun", run: steps, node: task("machine:b", "slurm-7.3"), want: StartRerun},
		{name: "a late pod", run: pods, node: pod("hint:2", "uid", "train"), want: LearnResult},
		{name: "a pod that was lost", run: lostPod, node: pod("hint:1", "uid", "train"), want: LearnResult},
		{
			name: "a pod that was lost, with another command",
			run:  lostPod, node: pod("hint:1", "uid", "eval"), want: RefuseArrival,
		},
		{
			name: "pods of another Job after one was lost",
			run:  lostPod, node: pod("hint:1", "uid2", "train"), want: StartRerun,
		},
		{
			name: "an extra pod of the Job, with another command",
			run:  pods, node: pod("hint:2", "uid", "eval"), want: RefuseArrival,
		},
		{name: "a pod that was replaced", run: pods, node: pod("hint:1", "uid", "train"), want: LearnResult},
		{name: "a pod's next command", run: pods, node: pod("hint:1", "uid", "eval"), want: StartRerun},
		{name: "pods of another Job", run: pods, node: pod("hint:1", "uid2", "train"), want: StartRerun},
		{name: "the nodes of the run are not known", node: hand("a"), want: RefuseArrival},
		{name: "timed out, by hand", run: byHand, Ending: rdzv.EndTimeout, node: hand("c"), want: StartRerun},
		{name: "timed out, the nodes of the run are not known", Ending: rdzv.EndTimeout, node: hand("c"), want: StartRerun},
		{name: "closed, by hand", run: byHand, Ending: rdzv.EndClosed, node: hand("a"), want: StartRerun},
		{name: "closed, by hand, another node", run: byHand, Ending: rdzv.EndClosed, node: hand("c"), want: RefuseArrival},
		{
			name: "closed, a pod that was restarted with another command",
			run:  pods, Ending: rdzv.EndClosed, node: pod("hint:0", "uid", "eval"), want: LearnResult,
		},
		{
			name: "closed, pods of another Job",
			run:  pods, Ending: rdzv.EndClosed, node: pod("hint:0", "uid2", "train"), want: StartRerun,
		},
	} {
		ending := tt.Ending
		if ending == "" {
			ending = rdzv.EndSucceeded
		}
		if got := tt.run.JudgeArrival(tt.node, ending); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestFindPastRun checks that an agent belongs to an earlier run by its round or its launch, unless the launch has
// begun another run.
func TestFindPastRun(t *testing.T) {
	run := func(epoch coord.Revision, launches ...string) *FinishedRun {
		f := &FinishedRun{Epoch: epoch}
		for _, l := range launches {
			f.Launches = append(f.Launches, Launch{ID: l})
		}
		return f
	}
	past := appendPastRun(nil, run(5, "one", ""), rdzv.Outcome{Restarts: 1}, []Launch{{ID: "two"}})
	past = appendPastRun(past, run(9, "two", "again"), rdzv.Outcome{Restarts: 2}, []Launch{{ID: "again"}, {}})
	for _, tt := range []struct {
		name   string
		epoch  coord.Revision
		launch string
		want   int // the run's number; 0: none
	}{
		{name: "no launch and no round"},
		{name: "an unknown launch", launch: "three"},
		{name: "late for the first run", launch: "one", want: 1},
		{name: "late for the second run", launch: "two", want: 2},
		{name: "a launch that has begun another run", launch: "again"},
		{name: "cut off when the first run ended", epoch: 4, want: 1},
		{name: "cut off when the second run ended", epoch: 9, want: 2},
		{name: "in a round of the current run", epoch: 12, launch: "one"},
	} {
		got := 0
		r := Report{Node: Node{Launch: Launch{ID: tt.launch}}, Fence: Fence{Epoch: tt.epoch}}
		if p := FindPastRun(past, &r); p != nil {
			got = p.Outcome.Restarts
		}
		if got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
	for range 2 * maxPast {
		past = appendPastRun(past, run(20), rdzv.Outcome{}, nil)
	}
	if len(past) != maxPast {
		t.Errorf("%d past runs are kept, want %d", len(past), maxPast)
	}
}

// TestRerun checks that agents that come to a finished run learn its result, begin a rerun, or are refused.
func TestRerun(t *testing.T) {
	finished := after(twoNodeRound,
		step{5, "a done; b done", "result: succeeded, forget job, end: a b"},
	)
	gone := after(finished, step{6, "a gone; b gone", ""})
	launched := []step{
		{0, "a ready +launch=L; b ready +launch=L", "job"},
		{1, "", "round 0: a b (0), run0: a b"},
		{5, "a done; b done", "result: succeeded, forget job, end: a b"},
		{6, "a gone; b gone", ""},
	}
	noRestart := jobWith(func(j *Job) { j.MaxRestarts = 0 })
	threeRestarts := jobWith(func(j *Job) { j.MaxRestarts = 3 })
	playAll(t, []leaderTest{
		{"by hand on the same nodes: a rerun", defaultJob(), after(gone,
			step{7, "a2 ready +id=a", "forget result, past: 1, wait: a2, job"},
			step{7.1, "b2 ready +id=b", ""},
			step{8.1, "", "round 1: a2 b2 (0), run1: a2 b2"},
			step{9, "a2 done; b2 done", "result: succeeded, forget job, end: a2 b2"},
		)},
		{"after a failure: a rerun", noRestart, after(twoNodeRound,
			step{5, "a failing 1", "halt0: a b"},
			step{6, "a ready; b ready", "result: failed by a, forget job, end: a b"},
			step{7, "a gone; b gone; a2 ready +id=a; b2 ready +id=b", "forget result, past: 1, wait: a2 b2, job"},
			step{8, "", "round 1: a2 b2 (0), run1: a2 b2"},
		)},
		{"a program that cannot be executed ends the first round of a rerun", defaultJob(), after(gone,
			step{7, "a2 ready +id=a; b2 ready +id=b", "forget result, past: 1, wait: a2 b2, job"},
			step{8, "", "round 1: a2 b2 (0), run1: a2 b2"},
			step{9, "a2 failing 1 +final", "halt1: a2 b2"},
			step{10, "new leader; a2 ready; b2 ready", "result: failed by a2, forget job, end: a2 b2"},
		)},
		{"a program that cannot be executed does not end a later round of a rerun", threeRestarts, after(gone,
			step{7, "a2 ready +id=a; b2 ready +id=b", "forget result, past: 1, wait: a2 b2, job"},
			step{8, "", "round 1: a2 b2 (0), run1: a2 b2"},
			step{20, "a2 failing 1", "halt1: a2 b2"},
			step{21, "a2 ready; b2 ready", "round 2: a2 b2 (1), run2: a2 b2"},
			step{22, "a2 failing 1 +final", "halt2: a2 b2"},
			step{23, "a2 ready; b2 ready", "round 3: a2 b2 (2), run3: a2 b2"},
		)},
		{"after a timeout any node begins a rerun", defaultJob(), []step{
			{0, "a ready", "job"},
			{60, "", "result: timeout, forget job, end: a"},
			{61, "b ready", "wait: b"},
			{62, "a gone", "forget result, past: 1, job"},
		}},
		{"no rerun while an agent of the finished run is left; waiting agents get a notice", defaultJob(), after(finished,
			step{6, "a gone; a2 ready +id=a", "wait: a2"},
			step{10.9, "", ""},
			step{11, "", "notice: a2"},
			step{12, "", ""},
			step{20, "b gone", "forget result, past: 1, job"},
		)},
		{"no rerun while an agent of the finished run is left, with a new leader", defaultJob(), after(finished,
			step{6, "a gone; a2 ready +id=a", "wait: a2"},
			step{7, "new leader", "wait: a2, end: b"},
			step{8, "b gone", "forget result, past: 1, job"},
		)},
		{"the waiting agent leaves", defaultJob(), after(gone,
			step{7, "a2 ready +id=a; c ready", "wait: a2, late refuse: c"},
			step{8, "a2 gone", ""},
			step{9, "c gone", ""},
			step{10, "d ready", "late refuse: d"},
		)},
		{"a node that was not there is refused", defaultJob(), after(gone,
			step{7, "c ready", "late refuse: c"},
			step{8, "c ready", ""},
		)},
		{"a late agent of the launch learns the result", defaultJob(), after(launched,
			step{7, "c ready +launch=L", "late end: c"},
			step{8, "c ready +launch=L", ""},
			step{9, "c gone", ""},
		)},
		{"another launch begins a rerun; late agents of the former one learn its result", defaultJob(), after(launched,
			step{7, "c ready +launch=M", "forget result, past: 1, wait: c, job"},
			step{7.1, "d ready +launch=L", "late end: d"},
			step{7.2, "d gone; e ready +launch=M", ""},
			step{8.3, "", "round 1: c e (0), run1: c e"},
			step{9, "d ready +launch=L", "late end: d"},
			step{9.1, "d gone; c busy; e busy", ""},
			step{10, "new leader; d ready +launch=L", "run1: c e, late end: d"},
			step{11, "d gone; c done; e done", "result: succeeded, forget job, end: c e"},
			step{12, "d ready +launch=L; f ready +launch=M", "late end: d f"},
		)},
		{"a late agent of the former launch does not decide the next run's parameters", defaultJob(), after(launched,
			step{7, "c ready +launch=M", "forget result, past: 1, wait: c, job"},
			step{8, "c gone; d ready +launch=L +max=9", "late end: d"},
			step{9, "e ready +launch=M; f ready +launch=M", ""},
			step{10, "", "round 1: e f (0), run1: e f"},
		)},
		{"an agent that was cut off when the run ended learns its result", defaultJob(), after(finished,
			step{6, "a gone; b gone", ""},
			step{7, "a done", "end: a"},
		)},
		{"an agent that had a session in an earlier store is no rerun", defaultJob(), after(gone,
			step{7, "a2 ready +id=a +earlier; c ready +earlier", "end: a2 c"},
			step{8, "a2 gone; c gone; a3 ready +id=a", "forget result, past: 1, wait: a3, job"},
		)},
		{"a closed run begins again for another launch", defaultJob(), after(twoNodeRound,
			step{5, "b busy +close", "result: closed, forget job, end: a b"},
			step{6, "a gone; b gone; a2 ready +id=a +launch=L", "forget result, past: 1, wait: a2, job"},
		)},
	})
}

// TestNoRerunInHostedStore checks that a store that ends with its run begins no rerun, and that agents that wait for
// one do not keep the host.
func TestNoRerunInHostedStore(t *testing.T) {
	s := play(t, defaultJob(), after(twoNodeRound,
		step{5, "a done; b done", "result: succeeded, forget job, end: a b"},
	))
	s.l.history.StoreEndsWithRun = true
	for _, st := range []struct {
		do           string
		acknowledged bool
	}{{"a2 ready +id=a", false}, {"a gone", false}, {"b gone", true}} {
		s.event(6*time.Second, st.do)
		writes, _, _ := s.l.Decide(6 * time.Second)
		s.write(writes)
		if s.l.Acknowledged() != st.acknowledged || s.l.history.rerunBegun {
			t.Errorf("%s: acknowledged %v, begun %v", st.do, s.l.Acknowledged(), s.l.history.rerunBegun)
		}
	}
	if a := s.answerTo("a2"); a.Kind != Wait || !a.Again {
		t.Errorf("the answer to a2 is %+v", a)
	}
}

// TestFinishedError checks the message.
func TestFinishedError(t *testing.T) {
	const rest = ", and this node was not in it when it ended; nothing was started. " +
		"Use a new --rdzv-id to start another run."
	for want, err := range map[string]*FinishedError{
		`run "job7" already finished (succeeded 3s ago on a, b and 2 more)`: {
			"job7", rdzv.EndSucceeded, rdzv.Late{Ago: 3100 * time.Millisecond, Hosts: []string{"a", "b"}, HostCount: 4},
		},
		`run "job" already finished (ended by the loss of a node 9s ago on a)`: {
			"job", rdzv.EndNodeLost, rdzv.Late{Ago: 9 * time.Second, Hosts: []string{"a"}, HostCount: 1},
		},
		`run "none" already finished (failed 0s ago)`: {
			"none", rdzv.EndFailed, rdzv.Late{},
		},
	} {
		if diff := cmp.Diff(want+rest, err.Error()); diff != "" {
			t.Error(diff)
		}
	}
}
