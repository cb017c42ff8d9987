package rounds

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

func TestLikeliestCause(t *testing.T) {
	const sec = time.Second
	type reported = rdzv.Failure
	waited := failure.Failure{Waited: true}
	type report struct {
		node int
		f    reported
	}
	for _, c := range []struct {
		name    string
		reports []report // one second apart
		want    int      // index
	}{
		{"one", []report{{0, reported{Grade: 5}}}, 0},
		{"better evidence", []report{{0, reported{Grade: 5, Age: 9 * sec}}, {1, reported{Grade: 1}}}, 1},
		{"the earlier one, reported later", []report{
			{0, reported{Grade: 1, Age: sec}},
			{1, reported{Grade: 1, Age: 5 * sec}},
		}, 1},
		{"the earlier one, by the time and not by the age", []report{
			{0, reported{Grade: 1, Age: sec}},
			{1, reported{Grade: 1, Age: sec + 1}},
		}, 0},
		{"the lower rank", []report{
			{0, reported{Failure: failure.Failure{GlobalRank: 4}, Age: sec}},
			{1, reported{Failure: failure.Failure{GlobalRank: 3}, Age: 2 * sec}},
		}, 1},
		{"a node reports later that its failure is a consequence", []report{
			{0, reported{Grade: 1}}, {1, reported{Grade: 2}}, {2, reported{Grade: 1}}, {0, reported{Grade: 3, Age: 3 * sec}},
		}, 2},
		{"an absent worker, if another one has waited", []report{
			{0, reported{Failure: waited, Grade: 4, Age: 5 * sec}},
			{1, reported{Grade: 4, Age: 5 * sec}},
			{2, reported{Grade: 4, Absent: true, OnlyStopped: true}},
		}, 2},
		{"an absent worker, if a connection was lost as another one of its node gave up", []report{
			{0, reported{Grade: failure.GradePeer, Age: 9 * sec}},
			{1, reported{Grade: failure.GradePeer, Age: 9 * sec, Absent: true}},
		}, 1},
		{"not an absent worker, if a connection was lost long before one of its node gave up", []report{
			{0, reported{Grade: failure.GradePeer, Age: 9 * sec}},
			{1, reported{Grade: failure.GradePeer, Age: 9*sec - 1, Absent: true}},
		}, 0},
		{"an absent worker, if a connection was lost as one of a third node gave up", []report{
			{0, reported{Failure: waited, Grade: failure.GradePeer, Age: 8 * sec}},
			{1, reported{Grade: failure.GradePeer, Age: 10 * sec}},
			{2, reported{Grade: failure.GradePeer, Absent: true, OnlyStopped: true}},
		}, 2},
		{"not an absent worker, if a connection was lost long before one of a third node gave up", []report{
			{0, reported{Failure: waited, Grade: failure.GradePeer, Age: 8*sec - 1}},
			{1, reported{Grade: failure.GradePeer, Age: 10 * sec}},
			{2, reported{Grade: failure.GradePeer, Absent: true, OnlyStopped: true}},
		}, 1},
		{"not an absent worker, if a connection was lost", []report{
			{0, reported{Grade: 4, Age: 9 * sec}},
			{1, reported{Failure: waited, Grade: 4}},
			{2, reported{Grade: 4, Absent: true, OnlyStopped: true}},
		}, 0},
		{"not an absent worker, if another one has failed", []report{
			{0, reported{Failure: waited, Grade: 4, Age: 9 * sec}},
			{1, reported{Grade: 1}},
			{2, reported{Grade: 4, Absent: true, OnlyStopped: true}},
		}, 1},
		{"a worker that was told to stop", []report{{0, reported{Grade: 3}}, {1, reported{Grade: 1, OnlyStopped: true}}}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r failureReports
			now := 100 * sec
			for i, one := range c.reports {
				one.f.PID = i
				now += sec
				r.record(now, one.node, one.f)
			}
			want := c.reports[c.want].f
			want.PID = c.want
			want.Age += time.Duration(len(c.reports)-c.want-1)*sec + 10*sec
			cause, _ := r.causes(now + 10*sec)
			if diff := cmp.Diff(&want, cause); diff != "" || !r.anyFailed {
				t.Error(diff)
			}
		})
	}
}

func TestFinal(t *testing.T) {
	ordinary, program, hang := failure.Failure{}, failure.Failure{Final: true}, failure.Failure{NoRestart: true}
	const cannot, hangs = "the program cannot be executed", "a worker hangs in the kernel"
	for _, tt := range []struct {
		name  string
		nodes []failure.Failure
		first string // in the first round
		later string
	}{
		{"a failure", []failure.Failure{ordinary, ordinary}, "", ""},
		{"a program is missing", []failure.Failure{ordinary, program}, cannot, ""},
		{"it is missing everywhere", []failure.Failure{program, program}, cannot, cannot},
		{"a hang in the kernel", []failure.Failure{ordinary, hang}, hangs, hangs},
		{"both", []failure.Failure{program, hang}, hangs, hangs},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r failureReports
			for rank, f := range tt.nodes {
				r.record(0, rank, rdzv.Failure{Failure: f})
			}
			for firstRound, want := range map[bool]string{true: tt.first, false: tt.later} {
				if got := r.final(firstRound, len(tt.nodes)); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
					t.Errorf("%q, want %q; first round: %v", got, want, firstRound)
				}
			}
		})
	}
}

// TestRepeatedReport checks that a repeated report does not make its failure younger.
func TestRepeatedReport(t *testing.T) {
	var r failureReports
	f := rdzv.Failure{Failure: failure.Failure{PID: 7}, Age: time.Second}
	r.record(10*time.Second, 0, f)
	r.record(60*time.Second, 0, f)
	if cause, _ := r.causes(60 * time.Second); cause.Age != 51*time.Second {
		t.Errorf("the failure is %v old", cause.Age)
	}
}

func TestOtherCauses(t *testing.T) {
	var r failureReports
	for node := range 40 {
		f := failure.Failure{GlobalRank: node, Text: "text", Summary: "s"}
		r.record(0, node, rdzv.Failure{Failure: f, Grade: 1 + node%2, Age: time.Duration(100 - node)})
	}
	cause, others := r.causes(0)
	if cause.GlobalRank != 0 || cause.Text != "text" || len(others) != rdzv.MaxOthers {
		t.Fatalf("cause %+v and %d others", cause, len(others))
	}
	for i, o := range others {
		if o.GlobalRank != 2*(i+1) || o.Text != "" || o.Summary != "s" {
			t.Errorf("other %d: %+v", i, o)
		}
	}
	if r = (failureReports{}); r.anyFailed {
		t.Error("failed without a report")
	}
	r.record(0, 1, rdzv.Failure{OnlyStopped: true})
	if r.anyFailed {
		t.Error("failed because of a stopped worker")
	}
	r.record(0, 1, rdzv.Failure{Failure: failure.Failure{Stopped: true}}) // a new leader may know no other report
	if !r.anyFailed {
		t.Error("not failed, because the likeliest cause was stopped")
	}
}
