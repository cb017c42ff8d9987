package rounds

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/elasticrun/elasticrun/pkg/goodput"
)

// sec returns an optional time of so many seconds.
func sec(s float64) *time.Duration { return new(time.Duration(s * float64(time.Second))) }

// shown returns steps, one each second, from first at time at to last.
func shown(first, last int64, at float64) *StepTimes {
	s := new(StepTimes)
	for step := first; step <= last; step++ {
		s.Marks = append(s.Marks, StepTime{step, *sec(at + float64(step-first))})
	}
	return s
}

// TestLedger has jobs as sequences of rounds.
func TestLedger(t *testing.T) {
	t.Parallel()
	failed := func(elapsed, ran, halted float64, steps *StepTimes) roundTime { // two nodes with 4 workers each
		return roundTime{
			elapsed: *sec(elapsed), halted: OptionalTime{*sec(halted), true}, members: []memberTime{
				{workers: 4, present: *sec(elapsed), started: sec(1), ran: sec(ran), steps: steps},
				{workers: 4, present: *sec(elapsed), started: sec(1), ran: sec(halted)},
			},
		}
	}
	done := func(elapsed float64, steps *StepTimes) roundTime {
		return roundTime{elapsed: *sec(elapsed), members: []memberTime{
			{workers: 4, present: *sec(elapsed), started: sec(1), ran: sec(elapsed - 2), done: true, steps: steps},
			{workers: 4, present: *sec(elapsed), started: sec(1), ran: sec(elapsed), done: true},
		}}
	}
	for _, tt := range []struct {
		name   string
		rounds []roundTime
		want   goodput.Goodput
	}{
		{"no round", nil, goodput.Goodput{}},
		{"success", []roundTime{done(10, nil)}, goodput.Goodput{Startup: 8, Running: 28 + 36, Idle: 8}},
		{"success with steps", []roundTime{done(10, shown(1, 5, 3))}, goodput.Goodput{
			Startup: 24, Running: 20 + 28, Idle: 8, Steps: true,
		}},
		{"a failure without steps", []roundTime{failed(10, 6, 8, nil), done(10, nil)}, goodput.Goodput{
			Startup: 16, Running: 40 + 64, Detection: 16, Standstill: 16, Idle: 8,
		}},
		{
			// 10 steps, of which the last 4 and what followed are done again.
			"lost steps",
			[]roundTime{failed(20, 15, 16, shown(1, 10, 2)), done(10, shown(7, 10, 3))},
			goodput.Goodput{
				Startup: 16 + 24, Running: 40 + 20 + 28, Lost: 64, Detection: 8, Standstill: 32, Idle: 8, Steps: true,
			},
		},
		{
			"it begins anew",
			[]roundTime{failed(20, 15, 16, shown(1, 10, 2)), done(10, shown(1, 6, 3))},
			goodput.Goodput{
				Startup: 16 + 24, Running: 20 + 28, Lost: 104, Detection: 8, Standstill: 32, Idle: 8, Steps: true,
			},
		},
		{
			// The second round goes back into the first one, the third one into both.
			"lost twice",
			[]roundTime{
				failed(20, 12, 12, shown(1, 10, 2)), failed(20, 6, 6, shown(7, 10, 2)), done(10, shown(5, 10, 3)),
			},
			goodput.Goodput{
				Startup: 32 + 24, Running: 24 + 20 + 28, Lost: 56 + 32, Standstill: 64 + 112, Idle: 8, Steps: true,
			},
		},
		{
			"the first round had no step",
			[]roundTime{failed(20, 12, 12, nil), done(10, shown(1, 6, 3))},
			goodput.Goodput{
				Startup: 96 + 24, Running: 20 + 28, Standstill: 64, Idle: 8, Steps: true,
			},
		},
		{
			"a later round had no step",
			[]roundTime{failed(20, 12, 12, shown(1, 10, 2)), failed(20, 12, 12, nil)},
			goodput.Goodput{Startup: 16 + 96, Running: 80, Standstill: 128, Steps: true},
		},
		{
			"the last steps are unknown",
			[]roundTime{failed(20, 12, 12, shown(1, 2, 2)), done(10, shown(9, 10, 3))},
			goodput.Goodput{
				Startup: 16 + 24, Running: 80 + 20 + 28, Standstill: 64, Idle: 8, Steps: true, LostUnknown: true,
			},
		},
		{
			// Every fourth step is shown: 8 was the last one, and 12 the first one after 8.
			"not all steps are shown",
			[]roundTime{
				failed(20, 12, 12, &StepTimes{Gap: 4, Marks: []StepTime{{4, *sec(5)}, {8, *sec(9)}}}),
				done(10, &StepTimes{Gap: 4, Marks: []StepTime{{12, *sec(3)}}}),
			},
			goodput.Goodput{
				Startup: 40 + 24, Running: 32 + 20 + 28, Lost: 24, Standstill: 64, Idle: 8, Steps: true,
			},
		},
		{
			"steps that go down",
			[]roundTime{
				failed(20, 12, 12, &StepTimes{Fell: true, Marks: []StepTime{{1, *sec(2)}, {2, *sec(9)}}}),
				done(10, shown(1, 6, 3)),
			},
			goodput.Goodput{
				Startup: 16 + 24, Running: 80 + 20 + 28, Standstill: 64, Idle: 8, Steps: true, LostUnknown: true,
			},
		},
		{
			"a node was lost",
			[]roundTime{{
				elapsed: *sec(20), halted: OptionalTime{*sec(10), true}, members: []memberTime{
					{workers: 4, present: *sec(9)}, {workers: 4, present: *sec(20), started: sec(0), ran: sec(10)},
				},
			}},
			goodput.Goodput{Running: 36 + 40, Standstill: 40},
		},
		{
			"a node had not started its workers",
			[]roundTime{{
				elapsed: *sec(20), halted: OptionalTime{*sec(10), true}, members: []memberTime{
					{workers: 4, present: *sec(20), ran: sec(10)}, {workers: 4, present: *sec(20), started: sec(1), ran: sec(10)},
				},
			}},
			goodput.Goodput{Startup: 80, Standstill: 80},
		},
		{
			"preempted",
			[]roundTime{{
				elapsed: *sec(20), halted: OptionalTime{*sec(10), true}, preempted: true, members: []memberTime{
					{workers: 4, present: *sec(20), started: sec(0), ran: sec(10)},
				},
			}},
			goodput.Goodput{Running: 40, Preemption: 40},
		},
		{
			// The new leader halts the round again, and does not know the member that was lost.
			"another leader",
			[]roundTime{{
				elapsed: *sec(100), halted: OptionalTime{*sec(90), true}, members: []memberTime{
					{workers: 4, present: -1, silent: true},
					{workers: 4, present: *sec(100), started: sec(0), ran: sec(10)},
					{workers: 4, present: *sec(100), started: sec(0), ran: sec(9)},
				},
			}},
			goodput.Goodput{Running: 3 * 36, Detection: 4 * 3, Standstill: 2 * 360},
		},
	} {
		var l ledger
		for _, r := range tt.rounds {
			l = l.settle(r)
		}
		if diff := cmp.Diff(tt.want, l.Used, cmpopts.EquateApprox(0, 1e-6)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestLedgerAddsUp settles random rounds, also ones that contradict themselves: no part is negative, and all of the
// workers' time is in one of them.
func TestLedgerAddsUp(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 7))
	some := func() *time.Duration {
		if rng.IntN(3) == 0 {
			return nil
		}
		return sec(rng.Float64()*12 - 1)
	}
	for range 20_000 {
		var l ledger
		want := 0.0
		for range 1 + rng.IntN(4) {
			r := roundTime{elapsed: *sec(10 * rng.Float64()), preempted: rng.IntN(5) == 0}
			if at := some(); at != nil {
				r.halted = OptionalTime{*at, true}
			}
			for range 1 + rng.IntN(3) {
				m := memberTime{
					workers: 1 + rng.IntN(4), present: r.elapsed, done: rng.IntN(4) == 0, silent: rng.IntN(9) == 0,
					started: some(), ran: some(),
				}
				if rng.IntN(4) == 0 {
					m.present = time.Duration(rng.Float64() * float64(r.elapsed))
				}
				for range rng.IntN(4) {
					if m.steps == nil {
						m.steps = &StepTimes{Gap: rng.Int64N(3), Fell: rng.IntN(20) == 0}
					}
					m.steps.Marks = append(m.steps.Marks, StepTime{rng.Int64N(20), *sec(rng.Float64() * 11)})
				}
				want += float64(m.workers) * m.present.Seconds()
				r.members = append(r.members, m)
			}
			l = l.settle(r)
			for i, m := range l.Marks {
				ordered := i == 0 || m.Kept >= l.Marks[i-1].Kept && m.Step > l.Marks[i-1].Step
				if m.Kept < 0 || m.Kept > l.Used.Running+1e-9 || !ordered {
					t.Fatalf("marks %v of %v\n%+v", l.Marks, l.Used.Running, r)
				}
			}
		}
		for _, p := range l.Used.Parts() {
			if p.Seconds < -1e-9 {
				t.Fatalf("%s is %v", p.Name, p.Seconds)
			}
		}
		if total := l.Used.Total(); math.Abs(total-want) > 1e-6 {
			t.Fatalf("%v worker-seconds of %v", total, want)
		}
	}
}

// TestLedgerIsBounded checks that a long history costs little, and that what is kept is still near.
func TestLedgerIsBounded(t *testing.T) {
	t.Parallel()
	var l ledger
	for round := range int64(100) { // each does 20 steps, and the next one does the last 5 again
		s := shown(1+15*round, 20+15*round, 1)
		l = l.settle(roundTime{elapsed: *sec(20), members: []memberTime{
			{workers: 1, present: *sec(20), ran: sec(20), steps: s},
		}})
		if len(l.Marks) > maxKept {
			t.Fatalf("%d marks", len(l.Marks))
		}
	}
	want := goodput.Goodput{Startup: 100, Running: 99*14 + 19, Lost: 99 * 5, Steps: true}
	if diff := cmp.Diff(want, l.Used, cmpopts.EquateApprox(0.01, 0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
