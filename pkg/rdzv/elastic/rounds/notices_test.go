package rounds

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// TestNotices checks which notices waiting agents get, and when.
func TestNotices(t *testing.T) {
	patient := jobWith(func(j *Job) { j.JoinTimeout = 10 * time.Minute })
	failing := func(at float64, round int) []step { // a round that begins at at, and fails a second later
		return []step{
			{at + 1, "a failing 1; b ready; c ready", fmt.Sprintf("halt%d: a b c", round)},
			{at + 2, "a ready", fmt.Sprintf("round %d: a b c (%d), run%d: a b c", round+1, round+1, round+1)},
		}
	}
	for _, c := range []struct {
		name  string
		job   Job
		steps []step
		agent string
		want  string // the note of the last answer to agent
	}{
		{
			"too few", patient, []step{
				{0, "a ready", "job"},
				{4.9, "", ""},
				{5, "", "notice: a"},
			}, "a", "1 of at least 2 nodes have joined; the job gives up in 9m55s",
		},
		{
			"ever longer pauses, until there are enough nodes",
			jobWith(func(j *Job) { j.Min, j.JoinTimeout = 3, 10*time.Minute }),
			[]step{
				{0, "a ready", "job"},
				{5, "", "notice: a"},
				{14.9, "b ready", ""},
				{15, "", "notice: a"},
				{20, "", "notice: b"},
				{30, "", "notice: b"},
				{35, "", "notice: a"},
				{50, "", "notice: b"},
				{75, "", "notice: a"},
				{90, "", "notice: b"},
				{134, "", ""},
				{135, "", "notice: a"},
				{150, "", "notice: b"},
				{195, "", "notice: a"},
				{196, "c ready", "round 0: a b c (0), run0: a b c"},
				{300, "", ""},
			},
			"", "",
		},
		{
			"all that came within a second at once", patient, []step{
				{0.2, "a ready +hint=9", "job"}, // the hint is not a possible rank
				{5.2, "", ""},
				{6, "", "notice: a"},
			}, "a", "1 of at least 2 nodes have joined; the job gives up in 9m55s", // 9m54.2s
		},
		{
			"missing ranks", jobWith(func(j *Job) { j.Min, j.Max = 8, 8 }), []step{
				{0, "a ready +hint=0; b ready +hint=1; c ready +hint=3; d ready +hint=4", "job"},
				{5, "", "notice: a b c d"},
			}, "c", "4 of 8 nodes have joined, missing node ranks 2, 5-7; the job gives up in 55s",
		},
		{
			"a rank that two nodes have: the missing ranks are unknown", jobWith(func(j *Job) { j.Min, j.Max = 4, 4 }), []step{
				{0, "a ready +hint=0; b ready +hint=0", "job"},
				{5, "", "notice: a b"},
			}, "b", "2 of 4 nodes have joined; the job gives up in 55s",
		},
		{
			"static: a rank that two nodes have, and a missing one", jobWith(func(j *Job) { j.Static, j.Min = true, 3 }), []step{
				{0, "a ready +hint=2; b ready +hint=2; c ready +hint=0", "job"},
				{5, "", "notice: a b c"},
			}, "a", "3 of 3 nodes have joined, missing node ranks 1; 2 nodes have node rank 2, on a, b: " +
				"give each node its own --node-rank from 0 to 2; the job gives up in 55s",
		},
		{
			"a node that had finished and is gone", defaultJob(), after(twoNodeRound,
				step{2, "b done", ""},
				step{3, "b gone; a failing 1", "halt0: a"},
				step{4, "a ready", ""},
				step{9, "", "notice: a"},
			), "a", "1 of at least 2 nodes have joined; b (node rank 1) had finished and may have left with success; " +
				"whether it comes back is not known: if it has left, start the job again on all nodes; the job gives up in 55s",
		},
		{
			"last call", jobWith(func(j *Job) { j.Max, j.LastCall, j.Expected = 9, 30*time.Second, 5 }), []step{
				{0, "a ready +hint=0; b ready +hint=2", "job"},
				{5, "", "notice: a b"},
			}, "a", "2 nodes have joined, 9 at most, missing node ranks 1, 3-4; the round begins in 25s, or as soon as all have come",
		},
		{
			"a node was lost", defaultJob(), after(twoNodeRound,
				step{5, "b gone", "halt0: a"},
				step{6, "a ready", ""},
				step{11, "", "notice: a"},
			), "a", "1 of at least 2 nodes have joined; b (node rank 1) was lost; the job gives up in 55s",
		},
		{
			"a node does not stop its workers", defaultJob(), after(threeNodeRound,
				step{5, "a failing 1", "halt0: a b c"},
				step{6, "a ready; c ready", ""},
				step{11, "", "notice: a c"},
			), "a", "b may take up to 4s more to stop workers",
		},
		{
			"join settle after a loss", jobWith(func(j *Job) { j.JoinSettle = 20 * time.Second }), after(threeNodeRound,
				step{5, "a gone; b gone", "halt0: c"},
				step{6, "c ready", ""},
				step{7, "d ready", ""},
				step{12, "", "notice: c d"},
			), "d", "2 nodes have joined; the round begins in 15s, or as soon as all have come",
		},
		{
			"join settle for a newcomer", jobWith(func(j *Job) { j.JoinSettle, j.Max = 20*time.Second, 4 }), after(twoNodeRound,
				step{30, "c ready", ""},
				step{35, "", "notice: c"},
			), "c", "the job is running: it begins a round with the new nodes in 15s",
		},
		{
			"a long backoff: at once", jobWith(func(j *Job) { j.MaxRestarts, j.MinUptime = 9, 5*time.Second }),
			slices.Concat(threeNodeRound, failing(0, 0), []step{
				{3, "a failing 1; b ready; c ready", "halt1: a b c"},
				{4, "a ready", ""}, // 1 s
				{5, "", "round 2: a b c (2), run2: a b c"},
				{6, "a failing 1; b ready; c ready", "halt2: a b c"},
				{7, "a ready", ""}, // 2 s
				{9, "", "round 3: a b c (3), run3: a b c"},
				{10, "a failing 1; b ready; c ready", "halt3: a b c"},
				{11, "a ready", ""}, // 4 s
				{15, "", "round 4: a b c (4), run4: a b c"},
				{16, "a failing 1; b ready; c ready", "halt4: a b c"},
				{17, "a ready", "notice: a b c"},
			}), "b", "the next round begins in 8s: the last 5 rounds failed within --min-uptime (5s)",
		},
		{
			"a spare: at once, then ever longer pauses", defaultJob(), after(threeNodeRound,
				step{10, "d ready", "wait: d"},
				step{15, "d ready", "notice: d"},
				step{16, "d ready", ""}, // the answer stands
				step{25, "", "notice: d"},
				step{45, "", "notice: d"},
				step{85, "", "notice: d"},
				step{165, "", "notice: d"},
				step{324, "", ""},
			), "d", "the job has its 3 nodes: this one is a spare, for 2m35s so far",
		},
		{
			"a quarantined node", jobWith(func(j *Job) { j.MaxNodeLosses, j.Grow = 1, GrowNextRestart }),
			after(threeNodeRound,
				step{5, "c gone; a ready; b ready", "round 1: a b (0), run1: a b"},
				step{5.5, "a busy; b busy; c2 ready +id=c", "wait: c2"},
				step{11, "", "notice: c2"},
			), "c2", "this node is quarantined, and is used only if the job cannot run without it: " +
				"it was lost too often, for another 9m54s",
		},
		{
			"a new leader starts the waits again", patient, []step{
				{0, "a ready", "job"},
				{5, "", "notice: a"},
				{6, "new leader", ""},
				{10.9, "", ""},
				{11, "", "notice: a"},
			}, "a", "1 of at least 2 nodes have joined; the job gives up in 9m55s",
		},
		{
			"an agent that leaves before gets none", patient, []step{
				{0, "a ready", "job"},
				{4, "a gone", ""},
				{5, "b ready", ""},
				{9, "", ""},
				{10, "", "notice: b"},
			}, "", "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := play(t, c.job, c.steps)
			if got := s.answerTo(c.agent).Note; got != c.want {
				t.Errorf("the answer to %s says %q, want %q", c.agent, got, c.want)
			}
		})
	}
}

// TestNoticesAreDeleted checks that answers of an earlier leader are deleted with their agents.
func TestNoticesAreDeleted(t *testing.T) {
	s := play(t, defaultJob(), []step{
		{0, "a ready", "job"},
		{5, "", "notice: a"},
		{6, "new leader", ""},
		{7, "a gone; b ready", ""},
	})
	if _, there := s.store[PrefixAnswer+"a"]; there {
		t.Errorf("the store has %v", slices.Sorted(maps.Keys(s.store)))
	}
}

// TestNoticesAreBounded checks that of thousands of agents only the first maxNoticeRecipients to arrive get notices,
// and that a notice is short.
func TestNoticesAreBounded(t *testing.T) {
	const n = 3 * maxNoticeRecipients
	j := defaultJob()
	j.Min, j.Max = n, n
	l := NewLeader(1, SavedState{}, 0)
	for i := range n - 1 {
		hint := n - 1 - i
		id := coord.SessionID(fmt.Sprintf("%05d", i))
		node := Node{Host: "h", Identity: string(id), Hint: hint, Nproc: 1}
		l.Observe(0, id, coord.Revision(i), &Report{Job: j, Node: node, Phase: Ready})
	}
	l.Decide(0)
	for range maxNoticeRecipients {
		id := coord.SessionID(fmt.Sprintf("%05d", n/2))
		r := l.participants.byID[id].report
		l.Observe(time.Second, id, n/2, &r)
	}
	if out, wake, _ := l.Decide(time.Second); len(out) != 0 || wake != FirstNotice {
		t.Errorf("%d writes before the time, and a wake at %v", len(out), wake)
	}
	out, _, _ := l.Decide(FirstNotice)
	if len(out) != maxNoticeRecipients {
		t.Errorf("%d notices, want %d", len(out), maxNoticeRecipients)
	}
	for _, w := range out {
		a := w.Value.(Answer)
		isLate := w.Key >= PrefixAnswer+fmt.Sprintf("%05d", maxNoticeRecipients)
		if isLate || len(a.Note) > 200 || !strings.Contains(a.Note, "missing node ranks 0;") {
			t.Fatalf("%s: %q", w.Key, a.Note)
		}
	}
}

func TestAbsentRanks(t *testing.T) {
	for present, want := range map[string]string{
		"": "", "1": "", "0": "0", "000": "0-2", "11011000": "2, 5-7", "0101": "0, 2",
		"01010101010101010101": "0, 2, 4, 6, 8, 10, 12, 14, ...",
	} {
		var all []bool
		for _, r := range present {
			all = append(all, r == '1')
		}
		if got := absentRanks(all); got != want {
			t.Errorf("%s: got %q, want %q", present, got, want)
		}
	}
}

func TestNeededNodes(t *testing.T) {
	for want, j := range map[string]Job{
		"1 node":           {Min: 1, Max: 1},
		"at least 1 node":  {Min: 1, Max: 3},
		"at least 2 nodes": {Min: 2, Max: 3},
		"3 nodes":          {Min: 2, Max: 3, Static: true},
	} {
		if got := (&Leader{job: &j}).neededNodes(); got != want {
			t.Errorf("%d to %d nodes, static %v: %q, want %q", j.Min, j.Max, j.Static, got, want)
		}
	}
}
