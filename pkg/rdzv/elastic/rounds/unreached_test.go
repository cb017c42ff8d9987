package rounds

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// TestRank0IsNotReached checks what follows if nodes do not reach the worker store. The round ends 6.25 s after the
// first attempt.
func TestRank0IsNotReached(t *testing.T) {
	fiveExpected := jobWith(func(j *Job) { j.Max, j.Expected = 9, 5 })
	noRestarts := jobWith(func(j *Job) { j.MaxRestarts = 0 })
	pair := jobWith(func(j *Job) { j.Max = 2 })
	playAll(t, []leaderTest{
		{"a spare that no node reaches becomes rank 0: it is quarantined", defaultJob(), after(threeNodeRound,
			step{3, "d ready", "wait: d"},
			step{5, "a gone; b ready; c ready", "round 1: d b c (0), run1: b c d"},
			step{6, "d busy; b busy +unreached=0; c busy +unreached=0.5", ""},
			step{11, "", ""},
			step{11.75, "", "halt1: b c d"}, // 6.25 s after c's first attempt
			step{12, "d ready; b ready +unreached=5.7; c ready +unreached=6.2", "round 2: b c (0), wait: d, run2: b c"},
			step{20, "b gone; c ready", "halt2: c, notice: d"},
			step{20.9, "", ""},
			step{21, "", "round 3: c d (0), run3: c d"}, // d is needed, but not as rank 0
		)},
		{"a node that does not reach rank 0, which others reach, is quarantined", defaultJob(), after(threeNodeRound,
			step{1, "c busy +unreached=0", ""},
			step{7.2, "", ""},
			step{7.25, "", "halt0: a b c"},
			step{8, "a ready; b ready; c ready +unreached=6", "round 1: a b (0), wait: c, run1: a b"},
			step{9, "c gone; c2 ready +id=c", "wait: c2"}, // its next agent is no newcomer
			step{20, "", "notice: c2"},
			step{60, "", "notice: c2"},
		)},
		{"the second quarantine is longer", jobWith(func(j *Job) { j.Min = 1; j.Max = 2; j.LastCall = 0 }), []step{
			{0, "a ready", "job, round 0: a (0), run0: a"},
			{1, "b ready", "halt0: a"},
			{2, "a ready", "round 1: a b (0), run1: a b"},
			{3, "b busy +unreached=0", ""},
			{9.25, "", "halt1: a b"},
			{10, "a ready; b ready +unreached=6", "round 2: a (0), wait: b, run2: a"},
			{609, "", "notice: b"},
			{610, "", "halt2: a"},
			{611, "a ready", "round 3: a b (0), run3: a b"},
			{612, "b busy +unreached=0", ""},
			{618.25, "", "halt3: a b"},
			{619, "a ready; b ready +unreached=6", "round 4: a (0), wait: b, run4: a"},
			{1300, "", "notice: b"},
			{1818, "", "notice: b"},
			{1819, "", "halt4: a"},
		}},
		{"both nodes are needed: the other one becomes rank 0", pair, []step{
			{0, "a ready; b ready", "job, round 0: a b (0), run0: a b"},
			{1, "a busy; b busy +unreached=0", ""},
			{7.25, "", "halt0: a b"},
			{8, "a ready; b ready +unreached=6", "round 1: b a (0), run1: a b"},
			{9, "a busy; b busy", ""},
			{100, "b done; a done", "result: succeeded, forget job, end: a b"},
		}},
		{"neither of two nodes reaches the other: the job cannot run", pair, []step{
			{0, "a ready; b ready", "job, round 0: a b (0), run0: a b"},
			{1, "a busy; b busy +unreached=0", ""},
			{7.25, "", "halt0: a b"},
			{8, "a ready; b ready +unreached=6", "round 1: b a (0), run1: a b"},
			{9, "b busy; a busy +unreached=0", ""},
			{15.25, "", "halt1: a b"},
			{16, "b ready; a ready +unreached=6", "result: timeout, forget job, end: a b"},
		}},
		{"of two nodes, the new one is at fault", pair, []step{
			{0, "a ready; b ready", "job, round 0: a b (0), run0: a b"},
			{1, "d ready", "wait: d"},
			{100, "a gone; b ready", "round 1: d b (0), run1: b d"},
			{101, "d busy; b busy +unreached=0", ""},
			{107.25, "", "halt1: b d"},
			{108, "b ready +unreached=6; d ready", ""},
			{109, "", "round 2: b d (0), run2: b d"},
		}},
		{"of two nodes, the one that a third does not reach either is at fault", pair, []step{
			{0, "a ready; b ready", "job, round 0: a b (0), run0: a b"},
			{1, "d ready", "wait: d"},
			{2, "a busy; b busy +unreached=0", ""}, // not because of rank 0
			{8.25, "", "halt0: a b, notice: d"},
			{9, "a ready; b ready +unreached=6", "round 1: a d (0), wait: b, run1: a d"},
			{10, "a busy; d busy +unreached=0", ""},
			{16.25, "", "halt1: a d, notice: b"},
			{17, "a ready; d ready +unreached=6", "round 2: b d (0), wait: a, run2: b d"},
		}},
		{"rank 0 was dead", defaultJob(), after(threeNodeRound,
			step{1, "b busy +unreached=0; c busy +unreached=0", ""},
			step{5, "a gone", "halt0: b c"},
			step{6, "b ready +unreached=4; c ready +unreached=4", "round 1: b c (0), run1: b c"},
			step{7, "a2 ready +id=a", "halt1: b c"},
			step{8, "b ready; c ready", "round 2: b c a2 (0), run2: a2 b c"},
		)},
		{"rank 0 is dying", defaultJob(), after(threeNodeRound,
			step{1, "b busy +unreached=0; c busy +unreached=0", ""},
			step{7.25, "", "halt0: a b c"},
			step{8, "b ready +unreached=6; c ready +unreached=6", ""},
			step{9, "a gone", "round 1: b c (0), run1: b c"},
		)},
		{"rank 0 is reached in time", defaultJob(), after(threeNodeRound,
			step{1, "b busy +unreached=0", ""},
			step{6, "b busy", ""},
			step{6.5, "c busy +unreached=0", ""},
			step{7.25, "", ""},
			step{8, "c busy", ""},
			step{60, "", ""},
		)},
		{"another leader takes over while the round stops", defaultJob(), after(threeNodeRound,
			step{1, "c busy +unreached=0", ""},
			step{7.25, "", "halt0: a b c"},
			step{7.5, "new leader", "halt0: a b c"},
			step{8, "a ready; b ready; c ready +unreached=6", "round 1: a b (0), wait: c, run1: a b"},
			step{9, "new leader", "wait: c, run1: a b"},
		)},
		{
			"the failures that follow are not charged by another leader, which takes the store for reached", noRestarts,
			after(threeNodeRound,
				step{1, "c busy +unreached=0", ""},
				step{7.25, "", "halt0: a b c"},
				step{7.3, "a failing 2; b ready; c ready +unreached=1", ""},
				step{8, "new leader", "halt0: a b c"},
				step{8.5, "a ready", "round 1: a b c (0), run1: a b c"},
			),
		},
		{"the failures that follow are not charged if the store is reached after all", noRestarts, after(threeNodeRound,
			step{1, "c busy +unreached=0", ""},
			step{7.25, "", "halt0: a b c"},
			step{7.3, "c busy; a failing 2", ""}, // c has not seen the Halt
			step{8, "a ready; b ready; c ready", "round 1: a b c (0), run1: a b c"},
		)},
		{"a failure of a worker meanwhile is charged", defaultJob(), after(threeNodeRound,
			step{1, "c busy +unreached=0", ""},
			step{2, "a failing 1", "halt0: a b c"},
			step{3, "a ready; b ready; c ready +unreached=1", "round 1: a b c (1), run1: a b c"},
		)},
		{"failures of the others in a round that rank 0 failed are not charged", noRestarts, after(threeNodeRound,
			step{1, "c busy +unreached=0", ""},
			step{6, "a failing 1", "halt0: a b c"},
			step{7, "a ready; b ready; c ready +unreached=5", "round 1: a b (0), wait: c, run1: a b"},
		)},
		{"no node reaches any other: the job ends after three attempts", fiveExpected, []step{
			{0, "a ready; b ready; c ready; d ready; e ready", "job, round 0: a b c d e (0), run0: a b c d e"},
			{1, "b busy +unreached=0; c busy +unreached=0; d busy +unreached=0; e busy +unreached=0", ""},
			{7.25, "", "halt0: a b c d e"},
			{
				8, "a ready; b ready +unreached=6; c ready +unreached=6; d ready +unreached=6; e ready +unreached=6",
				"round 1: b c d e (0), wait: a, run1: b c d e",
			},
			{9, "c busy +unreached=0; d busy +unreached=0; e busy +unreached=0", ""},
			{15.25, "", "halt1: b c d e, notice: a"},
			{
				16, "b ready; c ready +unreached=6; d ready +unreached=6; e ready +unreached=6",
				"round 2: c d e (0), wait: a b, run2: c d e",
			},
			{17, "d busy +unreached=0; e busy +unreached=0", ""},
			{23.25, "", "halt2: c d e, notice: b"},
			{24, "c ready; d ready +unreached=6; e ready +unreached=6", "result: timeout, forget job, end: a b c d e"},
		}},
	})
}

// TestQuarantineIsNamed checks that the quarantined node and the reason are named to all nodes of the next round, to
// the node itself, and in the outcome.
func TestQuarantineIsNamed(t *testing.T) {
	s := play(t, defaultJob(), after(threeNodeRound,
		step{1, "c busy +unreached=0", ""},
		step{7.25, "", "halt0: a b c"},
	))
	const cause = "did not reach the worker store on a, rank 0 (i/o timeout)"
	if a := s.answerTo("b"); a.Note != "c did not reach the worker store on a, rank 0" {
		t.Errorf("the Halt for b says %q", a.Note)
	}
	s.playMore([]step{{8, "a ready; b ready; c ready +unreached=6", "round 1: a b (0), wait: c, run1: a b"}})
	for id, want := range map[string]string{
		"b": "c is quarantined for 10m: it " + cause, "c": "this node is quarantined",
	} {
		if a := s.answerTo(id); !strings.Contains(a.Note, want) || !strings.Contains(a.Note, cause) {
			t.Errorf("the answer to %s says %q", id, a.Note)
		}
	}
	s.playMore([]step{{9, "a busy +close", "result: closed, forget job, end: a b c"}})
	if o := s.store[KeyResult].(rdzv.Outcome); !strings.Contains(o.Text, "c is quarantined: it "+cause) {
		t.Errorf("the outcome says %q", o.Text)
	}
}

func TestSuspects(t *testing.T) {
	for _, c := range []struct {
		name      string
		nodes     int
		reporters []int
		isNew     []int
		missed    []int // by rank
		want      []int
	}{
		{"one of two", 2, []int{1}, nil, nil, []int{1}},
		{"one of two, rank 0 is new", 2, []int{1}, []int{0}, nil, []int{0}},
		{"one of two, both are new", 2, []int{1}, []int{0, 1}, nil, []int{1}},
		{"one of two, rank 0 has missed more", 2, []int{1}, []int{1}, []int{2, 1}, []int{0}},
		{"one of two, that one has missed more", 2, []int{1}, []int{0}, []int{1, 2}, []int{1}},
		{"one of two, both have missed two", 2, []int{1}, []int{0}, []int{2, 2}, []int{0}},
		{"one of three", 3, []int{2}, []int{0}, nil, []int{2}},
		{"two of three", 3, []int{1, 2}, nil, nil, []int{0}},
		{"half of the others", 5, []int{1, 2}, nil, nil, []int{1, 2}},
		{"more than half of the others", 4, []int{1, 3}, nil, nil, []int{0}},
		{"all", 9, []int{1, 2, 3, 4, 5, 6, 7, 8}, nil, nil, []int{0}},
	} {
		got := suspects(c.nodes, c.reporters, func(rank int) missCount {
			if c.missed == nil {
				return missCount{}
			}
			return missCount{nodes: c.missed[rank]}
		}, func(rank int) bool { return slices.Contains(c.isNew, rank) })
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestChooseRank0(t *testing.T) {
	of := func(names string) (out []candidate) {
		for i, name := range strings.Fields(names) {
			out = append(out, candidate{node: Node{Identity: name}, arrived: coord.Revision(i)})
		}
		return out
	}
	for _, c := range []struct{ members, all, unreachable, want string }{
		{"a b c", "a b c", "", "a b c"},
		{"a b c", "a b c", "b", "a b c"},
		{"a b c", "a b c", "a", "b a c"},
		{"a b c d", "a b c d", "a b", "c a b d"},
		{"a b", "a b c", "a b", "c a"},
		{"a b", "a b", "a b", "none"},
	} {
		members, ok := chooseRank0(of(c.members), of(c.all), func(identity string) bool {
			return slices.Contains(strings.Fields(c.unreachable), identity)
		})
		var names []string
		for _, m := range members {
			names = append(names, m.node.Identity)
		}
		got := strings.Join(names, " ")
		if !ok {
			got = "none"
		}
		if got != c.want {
			t.Errorf("%s of %s without %s: %s, want %s", c.members, c.all, c.unreachable, got, c.want)
		}
	}
}

// TestFaultsSurviveALeader checks that faults in a record mean the same to the next leader, whose clock has another
// origin.
func TestFaultsSurviveALeader(t *testing.T) {
	const minute, origin = time.Minute, 1000 * time.Hour
	var b budget
	b.quarantine(0, "a", "host-a", "first")
	b.recordUnreachable(minute, "a", "host-a", "first")
	b.recordUnreachable(3*minute, "b", "host-b", "second")
	b.quarantine(0, "c", "host-c", "first")
	b.quarantine(10*minute, "c", "host-c", "third")
	var r Record
	b.saveTo(&r, 12*minute, &Job{})
	ageA, ageB := 11*minute, 9*minute
	want := map[string]NodeFault{
		"a": {Age: 12 * minute, Times: 1, Host: "host-a", Reason: "first", Unreachable: &ageA},
		"b": {Age: 9 * minute, Host: "host-b", Reason: "second", Unreachable: &ageB},
		"c": {Age: 2 * minute, Times: 2, Host: "host-c", Reason: "third"},
	}
	if diff := cmp.Diff(want, r.Faults); diff != "" {
		t.Fatal(diff)
	}
	next := restoreBudget(r, &Job{}, origin)
	if next.isQuarantined("a") || next.isQuarantined("b") || !next.isQuarantined("c") {
		t.Errorf("quarantined: %v", next.quarantinedUntil)
	}
	next.shiftBack(3 * minute)
	if at := next.quarantinedUntil["c"]; at != origin+15*minute {
		t.Errorf("quarantined until %v, want %v", at-origin, 15*minute)
	}
	if a, b := next.isUnreachable(origin, "a"), next.isUnreachable(origin, "b"); a || b {
		t.Errorf("unreachable: %v, %v", a, b)
	}
	var later Record
	next.saveTo(&later, origin+60*minute, &Job{})
	if later.Faults != nil {
		t.Errorf("faults that are not forgiven: %v", later.Faults)
	}
}

// A node that was quarantined because another one could not be reached is let in again, unless it was lost too often.
func TestReadmit(t *testing.T) {
	const minute = time.Minute
	j := &Job{MaxNodeLosses: 2}
	for _, c := range []struct {
		name    string
		losses  []time.Duration
		now     time.Duration
		want    time.Duration // end of the quarantine; 0: none
		without bool          // another node is found to be at fault
	}{
		{name: "never lost", now: 6 * minute},
		{name: "lost once", losses: []time.Duration{minute}, now: 6 * minute},
		{name: "lost twice", losses: []time.Duration{minute, 2 * minute}, now: 6 * minute, want: 12 * minute},
		{name: "lost twice long ago", losses: []time.Duration{minute, 2 * minute}, now: 13 * minute},
		{name: "another pair", now: 6 * minute, want: 15 * minute, without: true},
	} {
		var b budget
		for _, at := range c.losses {
			b.recordLoss(at, "wronged", j)
		}
		b.quarantine(5*minute, "wronged", "host", "reason")
		b.faults["wronged"].pairedWith = "culprit"
		if c.without {
			b.faults["wronged"].pairedWith = "other"
		}
		b.readmit(c.now, "culprit", j)
		if got := b.quarantinedUntil["wronged"]; got != c.want || b.isQuarantined("wronged") != (c.want > 0) {
			t.Errorf("%s: quarantined until %v, want %v", c.name, got, c.want)
		}
		if c.want == 12*minute && b.quarantineReason("wronged") != "lost 2 times in 10m" {
			t.Errorf("%s: %q", c.name, b.quarantineReason("wronged"))
		}
	}
}
