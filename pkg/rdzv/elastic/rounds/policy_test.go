package rounds

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// codes parses a set of exit codes.
func codes(t testing.TB, s string) rdzv.ExitCodes {
	t.Helper()
	set, err := rdzv.ParseExitCodes(s)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// at returns a failure of rank 0 of four workers at a step.
func at(step int64) failedRound {
	return failedRound{signature: "nan", code: 1, step: &step, world: 4}
}

// failedWith returns the failure of at with a change.
func failedWith(step int64, change func(*failedRound)) failedRound {
	f := at(step)
	change(&f)
	return f
}

func TestPolicy(t *testing.T) {
	unknown := func(f *failedRound) { f.step = nil }
	rank1 := func(f *failedRound) { f.rank = 1 }
	other := func(f *failedRound) { f.signature = "oom" }
	nothing := func(f *failedRound) { f.signature = "" }
	smaller := func(f *failedRound) { f.world = 3 }
	same3, idle2 := Policy{MaxSame: 3}, Policy{MaxIdle: 2}
	for _, tt := range []struct {
		name     string
		policy   Policy
		failures []failedRound
		want     rdzv.Rule // after the last failure, and none before
	}{
		{"no rules", Policy{}, []failedRound{at(3), at(3), at(3), at(3)}, ""},
		{"a loop: three failures at the same step", same3, []failedRound{at(3), at(3), at(3)}, rdzv.RuleSameFailure},
		{"a loop: two restarts without progress", idle2, []failedRound{at(3), at(3), at(3)}, rdzv.RuleNoProgress},
		{"both: the same failure says more", Policy{MaxSame: 3, MaxIdle: 2}, []failedRound{at(3), at(3), at(3)}, rdzv.RuleSameFailure},
		{"the same failure, later each time", same3, []failedRound{at(3), at(4), at(5), at(6)}, ""},
		{"steps go back", idle2, []failedRound{at(9), at(5), at(4)}, rdzv.RuleNoProgress},
		{"beyond the failure before, not beyond the best", idle2, []failedRound{at(9), at(5), at(7), at(8)}, ""},
		{"progress in between", idle2, []failedRound{at(3), at(3), at(4), at(4)}, ""},
		{"another rank", same3, []failedRound{at(3), at(3), failedWith(3, rank1)}, ""},
		{"progress, and in between a failure without a step", same3, []failedRound{
			at(3), failedWith(0, unknown), at(9), failedWith(0, unknown), at(12),
		}, ""},
		{"progress in another world", same3, []failedRound{at(3), failedWith(9, smaller), at(12), failedWith(13, smaller)}, ""},
		{"no progress, and in between a failure without a step", same3, []failedRound{
			at(3), failedWith(0, unknown), at(3),
		}, rdzv.RuleSameFailure},
		{"another failure in between", same3, []failedRound{at(3), at(3), failedWith(3, other), at(3)}, ""},
		{"another failure, no progress", idle2, []failedRound{at(3), failedWith(3, other), failedWith(3, rank1)}, rdzv.RuleNoProgress},
		{
			"all ranks fail alike, and another is the first each time", same3,
			[]failedRound{at(3), failedWith(3, func(f *failedRound) { f.rank, f.alike = 1, true }), at(3)},
			rdzv.RuleSameFailure,
		},
		{"failures that say nothing of their worker", same3, []failedRound{
			failedWith(3, nothing), failedWith(3, nothing), failedWith(3, nothing),
		}, ""},
		{"steps are not known", idle2, []failedRound{failedWith(0, unknown), failedWith(0, unknown), failedWith(0, unknown)}, ""},
		{"no step is no proof", idle2, []failedRound{at(3), failedWith(0, unknown), at(3), failedWith(0, unknown), at(3)}, ""},
		{"the same failure before any step", same3, []failedRound{
			failedWith(0, unknown), failedWith(0, unknown), failedWith(0, unknown),
		}, rdzv.RuleSameFailure},
		{"another world counts its steps anew", idle2, []failedRound{at(3), failedWith(2, smaller), at(1), failedWith(1, smaller)}, ""},
		{"a final code", Policy{FinalCodes: codes(t, "3,40-42")}, []failedRound{
			at(3), failedWith(3, func(f *failedRound) { f.code = 41 }),
		}, rdzv.RuleFinalCode},
		{"a worker says stop", Policy{}, []failedRound{at(3), failedWith(3, func(f *failedRound) { f.stop = "a" })}, rdzv.RuleStop},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r repeats
			for i, f := range tt.failures {
				r = r.after(f)
				rule, why := tt.policy.verdict(r, f)
				want := rdzv.Rule("")
				if i == len(tt.failures)-1 {
					want = tt.want
				}
				if rule != want || (rule == "") != (why == "") {
					t.Errorf("failure %d: %q (%s), want %q", i, rule, why, want)
				}
			}
		})
	}
}

// TestPolicyNotice checks that failures that repeat are reported without a rule.
func TestPolicyNotice(t *testing.T) {
	r := repeats{}.after(at(3))
	if got := r.notice(); got != "" {
		t.Errorf("one failure: %q", got)
	}
	r = r.after(at(3))
	if want := "this was the same failure as before, 2 times in a row, at step 3 again"; r.notice() != want {
		t.Errorf("%q, want %q", r.notice(), want)
	}
}

// TestPolicyHistories replays generated histories, whose verdicts are known from how they were made: stretches in which
// the job makes progress, and loops. A rule must end the job in the first loop that is long enough, at the failure that
// makes it so, and never elsewhere.
func TestPolicyHistories(t *testing.T) {
	for seed := range testenv.Repeat(t, 10000, 100000) {
		rng := rand.New(rand.NewPCG(uint64(seed), 0))
		policy := Policy{MaxSame: 2 + rng.IntN(4), MaxIdle: 1 + rng.IntN(4)}
		byStep := rng.IntN(2) == 0 // true: MaxIdle is the rule; false: MaxSame
		if byStep {
			policy.MaxSame = 0
		} else {
			policy.MaxIdle = 0
		}
		history, want := policyHistory(rng, policy)
		var r repeats
		got := -1
		for i, f := range history {
			r = r.after(f)
			if rule, _ := policy.verdict(r, f); rule != "" {
				got = i
				break
			}
		}
		if got != want {
			t.Fatalf("seed %d, %+v: the job ends with failure %d, want %d\n%s", seed, policy, got, want, describe(history))
		}
	}
}

// policyHistory returns a history of failures and the index of the one that must end the job; -1 for none.
func policyHistory(rng *rand.Rand, policy Policy) (history []failedRound, ends int) {
	ends = -1
	step, signature := int64(rng.IntN(100)), 0
	add := func(f failedRound, progress bool) {
		if f.world = 8; progress {
			step += 1 + int64(rng.IntN(50))
		}
		if f.step == nil {
			known := step
			f.step = &known
		}
		history = append(history, f)
	}
	fresh := func() string { signature++; return fmt.Sprint("failure ", signature) }
	for range 1 + rng.IntN(6) {
		switch rng.IntN(4) {
		case 0: // progress, with failures of any kind, also the same one again
			name := fresh()
			for range 1 + rng.IntN(8) {
				add(failedRound{signature: name, rank: rng.IntN(8)}, true)
			}
		case 1: // failures without steps, all different
			for range 1 + rng.IntN(8) {
				add(failedRound{signature: fresh()}, true)
				history[len(history)-1].step = nil
			}
		case 2: // lost peers, whose failures have no signature
			for range 1 + rng.IntN(8) {
				add(failedRound{}, true)
			}
		case 3: // a loop: the same failure, at the same step or earlier
			length := 1 + rng.IntN(7)
			f := failedRound{signature: fresh(), rank: rng.IntN(8)}
			add(f, true)
			for range length - 1 {
				back := *history[len(history)-1].step - int64(rng.IntN(2))
				f.step = &back
				add(f, false)
			}
			needs := policy.MaxSame
			if policy.MaxIdle > 0 {
				needs = policy.MaxIdle + 1
			}
			if ends < 0 && length >= needs {
				ends = len(history) - length + needs - 1
			}
		}
	}
	return history, ends
}

func describe(history []failedRound) (text string) {
	for i, f := range history {
		step := "unknown"
		if f.step != nil {
			step = fmt.Sprint(*f.step)
		}
		text += fmt.Sprintf("%d: %q of rank %d at step %s\n", i, f.signature, f.rank, step)
	}
	return text
}
