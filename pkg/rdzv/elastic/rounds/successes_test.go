package rounds

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// finishedAndGone is a running round of a, b and c. The workers of a have finished, then its session has ended.
var finishedAndGone = after(threeNodeRound,
	step{1, "a done", ""},
	step{2, "a gone", ""},
)

// TestLeaderSuccesses checks that a later leader does not take a node that has finished for lost.
func TestLeaderSuccesses(t *testing.T) {
	playAll(t, []leaderTest{
		{"the others go on", defaultJob(), after(finishedAndGone,
			step{3, "new leader", "run0: b c"},
			step{4, "b done; c done", "result: succeeded, forget job, end: b c"},
		)},
		{"the session ends while nobody leads", defaultJob(), after(threeNodeRound,
			step{1, "a done", ""},
			step{3, "a gone; new leader", "run0: b c"},
			step{4, "b done; c done", "result: succeeded, forget job, end: b c"},
		)},
		{"the leader after the next knows it too", defaultJob(), after(finishedAndGone,
			step{3, "new leader", "run0: b c"},
			step{4, "b done", ""},
			step{5, "b gone; new leader", "run0: c"},
			step{6, "c done", "result: succeeded, forget job, end: c"},
		)},
		{"all have finished and gone", defaultJob(), after(finishedAndGone,
			step{3, "b done", ""},
			step{4, "b gone", ""},
			step{5, "c done; c gone; d ready +max=4", "result: succeeded, forget job, end: d"},
		)},
		{"another node fails: the round runs again without it", defaultJob(), after(finishedAndGone,
			step{3, "new leader", "run0: b c"},
			step{4, "b failing 1", "halt0: b c"},
			step{5, "b ready; c ready", "round 1: b c (0), run1: b c"}, // a was rank 0, whose store is gone
		)},
		{"another node fails: one restart is charged", defaultJob(), after(threeNodeRound,
			step{1, "b done", ""},
			step{2, "b gone; new leader", "run0: a c"},
			step{3, "c failing 1", "halt0: a c"},
			step{4, "a ready; c ready", "round 1: a c (1), run1: a c"},
		)},
		{
			"another node is lost: the round runs again without both", jobWith(func(j *Job) { j.Min = 1 }),
			after(finishedAndGone,
				step{3, "b gone; new leader", "halt0: c"},
				step{4, "c ready", "round 1: c (0), run1: c"},
			),
		},
		{"a node that finished an earlier round has not finished this one", defaultJob(), after(threeNodeRound,
			step{1, "a done", ""},
			step{2, "b failing 1", "halt0: a b c"},
			step{3, "a ready; b ready; c ready", "round 1: a b c (1), run1: a b c"},
			step{4, "a gone; new leader", "halt1: b c"},
		)},
		{"a success that comes with a failure does not count", defaultJob(), after(threeNodeRound,
			step{1, "a done; b failing 1", "halt0: a b c"},
			step{2, "a gone; new leader", "halt0: b c"},
		)},
	})
}

// TestSuccessesAreForgotten checks that the store has no record of successes once the round is over.
func TestSuccessesAreForgotten(t *testing.T) {
	for name, steps := range map[string][]step{
		"the job succeeds": {{4, "b done; c done", "result: succeeded, forget job, end: b c"}},
		"the next round begins": {
			{4, "b failing 1", "halt0: b c"}, {5, "b ready; c ready", "round 1: b c (0), run1: b c"},
		},
		"all nodes have gone": {{4, "b gone; c gone; d ready; new leader", "job, forget job"}},
		"a leader finds them with the result": {
			{4, "b done; c done", "result: succeeded, forget job, end: b c"}, {5, "stale; new leader", "end: b c"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, defaultJob(), finishedAndGone)
			key := SuccessKey(0, 0)
			record, recorded := s.store[key]
			if !recorded {
				t.Fatal("nothing was recorded")
			}
			for _, st := range steps {
				if do, stale := strings.CutPrefix(st.do, "stale; "); stale {
					s.store[key], st.do = record, do
				}
				s.playMore([]step{st})
			}
			if _, recorded := s.store[key]; recorded {
				t.Error("the record is still there")
			}
		})
	}
}

// TestSuccessesOfAnotherRun checks that a record of another run, whose rounds had the same numbers, does not count.
func TestSuccessesOfAnotherRun(t *testing.T) {
	s := play(t, defaultJob(), finishedAndGone)
	key := SuccessKey(0, 0)
	record := s.store[key].(Successes)
	record.Session = "another"
	s.store[key] = record
	s.playMore([]step{{3, "new leader", "halt0: b c"}})
	if _, recorded := s.store[key]; recorded {
		t.Error("the record is still there")
	}
}

// TestSuccessIsAnnounced checks that the members of the next round learn whose success does not count any more.
func TestSuccessIsAnnounced(t *testing.T) {
	s := play(t, defaultJob(), after(finishedAndGone,
		step{3, "b failing 1", "halt0: b c"},
		step{4, "b ready; c ready", "round 1: b c (0), run1: b c"},
	))
	want := "the round runs again although the workers of a (node rank 0) had finished: the agent there has ended, and " +
		"a new one may take its place"
	if diff := cmp.Diff(want, s.answerTo("b").Note); diff != "" {
		t.Error(diff)
	}
}

// TestSuccessesOfALargeJob checks that the successes of many nodes take few writes, and one success few bytes.
func TestSuccessesOfALargeJob(t *testing.T) {
	const nodes = 5*SuccessChunk + 7
	l := &Leader{record: Record{Round: 3, Members: make([]RecordMember, nodes)}}
	l.record.Members[0].ID = "s"
	l.round.members = make([]roundMember, nodes)
	for rank := range nodes - 1 {
		l.round.succeeded = append(l.round.succeeded, rank)
	}
	l.recordSuccesses()
	writes := l.writes
	if len(writes) != 6 {
		t.Errorf("%d writes for %d nodes", len(writes), nodes)
	}
	l.writes, l.round.succeeded = nil, []int{nodes - 1}
	l.recordSuccesses()
	if b := mustEncode(EncodeValue(l.writes[0].Value)); len(l.writes) != 1 || len(b) > 200 {
		t.Errorf("%d writes for one node, the first one: %s", len(l.writes), b)
	}
	next := &Leader{record: l.record}
	next.round.members, next.round.active = make([]roundMember, nodes), nodes
	saved := []Successes{l.writes[0].Value.(Successes)}
	for _, w := range writes[:5] {
		saved = append(saved, w.Value.(Successes))
	}
	if next.takeOverSuccesses(saved); !next.round.allDone() {
		t.Errorf("%d of %d nodes have succeeded", next.round.done, nodes)
	}
}
