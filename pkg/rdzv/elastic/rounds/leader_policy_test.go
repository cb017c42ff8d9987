package rounds

import "testing"

func TestLeaderPolicy(t *testing.T) {
	policy := func(p Policy) Job { return jobWith(func(j *Job) { j.MaxRestarts, j.MinUptime, j.Policy = 9, 0, p }) }
	again := func(at float64, round string, options string) []step {
		return []step{
			{at, "a failing 1" + options, "halt" + round + ": a b"},
			{at + 1, "a ready; b ready", "round " + string(round[0]+1) + ": a b (" + string(round[0]+1) + "), run" + string(round[0]+1) + ": a b"},
			{at + 2, "a busy; b busy", ""},
		}
	}
	ended := func(how string) string { return "result: failed (" + how + ") by a, forget job, end: a b" }
	playAll(t, []leaderTest{
		{"a final code", policy(Policy{FinalCodes: codes(t, "7")}), after(twoNodeRound,
			step{10, "a failing 1 +code=7", "halt0: a b"},
			step{11, "a ready; b ready", ended("final_code")},
		)},
		{"the code of a victim is not final", policy(Policy{FinalCodes: codes(t, "7")}), after(twoNodeRound,
			step{10, "a failing 0", "halt0: a b"},
			step{11, "b failing 1 +code=7", ""},
			step{12, "a ready; b ready", "round 1: a b (1), run1: a b"},
		)},
		{"no restart is left, and the rule holds too", jobWith(func(j *Job) {
			j.MaxRestarts, j.Policy = 0, Policy{FinalCodes: codes(t, "7")}
		}), after(twoNodeRound,
			step{10, "a failing 1 +code=7", "halt0: a b"},
			step{11, "a ready; b ready", ended("final_code")},
		)},
		{"a worker says stop, though the other node has failed", policy(Policy{}), after(twoNodeRound,
			step{10, "a failing 1", "halt0: a b"},
			step{11, "a ready; b ready +stop", ended("stop_requested")},
		)},
		{"a worker says stop, and a node is lost", policy(Policy{}), after(threeNodeRound,
			step{10, "a failing 1", "halt0: a b c"},
			step{11, "c gone", ""},
			step{12, "a ready +stop; b ready", ended("stop_requested")},
		)},
		{"a worker says stop, and nobody has failed", policy(Policy{}), after(twoNodeRound,
			step{10, "c ready", "halt0: a b"},
			step{11, "a ready +stop; b ready", "round 1: a b c (0), run1: a b c"},
		)},
		{"the same failure three times", policy(Policy{MaxSame: 3}), after(twoNodeRound, append(append(
			again(10, "0", ""), again(20, "1", "")...),
			step{30, "a failing 1", "halt2: a b"},
			step{31, "a ready; b ready", ended("same_failure")},
		)...)},
		{"a new leader knows the failures before", policy(Policy{MaxSame: 3}), after(twoNodeRound, append(append(
			again(10, "0", ""), again(20, "1", "")...),
			step{25, "new leader", "run2: a b"},
			step{30, "a failing 1", "halt2: a b"},
			step{30.5, "new leader", "halt2: a b"},
			step{31, "a ready; b ready", ended("same_failure")},
		)...)},
		{"no progress, as any node has seen it", policy(Policy{MaxIdle: 1}), after(twoNodeRound,
			step{10, "a failing 1", "halt0: a b"},
			step{11, "a ready; b ready +step=5", "round 1: a b (1), run1: a b"},
			step{12, "a busy; b busy", ""},
			step{20, "a failing 1 +code=2", "halt1: a b"},
			step{21, "a ready; b ready +step=5", ended("no_progress")},
		)},
		{"a code that excludes the node", policy(Policy{ExcludeCodes: codes(t, "7")}), after(threeNodeRound,
			step{10, "b failing 1 +code=7", "halt0: a b c"},
			step{11, "a ready; b ready; c ready", "round 1: a c (1), wait: b, run1: a c"},
		)},
		{"a worker that excludes its node", policy(Policy{}), after(threeNodeRound,
			step{10, "a failing 1", "halt0: a b c"},
			step{11, "a ready; b ready +exclude; c ready", "round 1: a c (1), wait: b, run1: a c"},
		)},
	})
}

// TestRoundSaysWhatWasBefore checks what the members of a round learn of the round before.
func TestRoundSaysWhatWasBefore(t *testing.T) {
	job := jobWith(func(j *Job) { j.MaxRestarts, j.MinUptime = 9, 0 })
	for _, tt := range []struct {
		name       string
		steps      []step
		lost, same int
	}{
		{"the first round", nil, 0, 0},
		{"a failure", []step{
			{10, "a failing 1", "halt0: a b c"},
			{11, "a ready; b ready; c ready", "round 1: a b c (1), run1: a b c"},
		}, 0, 1},
		{"the same failure again", []step{
			{10, "a failing 1", "halt0: a b c"},
			{11, "a ready; b ready; c ready", "round 1: a b c (1), run1: a b c"},
			{12, "a busy; b busy; c busy", ""},
			{20, "a failing 1", "halt1: a b c"},
			{21, "a ready; b ready; c ready", "round 2: a b c (2), run2: a b c"},
		}, 0, 2},
		{"a lost node after a failure", []step{
			{10, "a failing 1", "halt0: a b c"},
			{11, "a ready; b ready; c ready", "round 1: a b c (1), run1: a b c"},
			{12, "a busy; b busy; c busy", ""},
			{20, "c gone", "halt1: a b"},
			{21, "a ready; b ready", "round 2: a b (1), run2: a b"},
		}, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := play(t, job, after(threeNodeRound, tt.steps...))
			if p := s.answerTo("a").Place; p == nil || p.Lost != tt.lost || p.Same != tt.same {
				t.Errorf("%+v, want %d lost and %d failures", p, tt.lost, tt.same)
			}
		})
	}
}
