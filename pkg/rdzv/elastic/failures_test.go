package elastic

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

func TestBlameFindsTheCause(t *testing.T) {
	const sec = time.Second
	type told struct {
		node int
		f    rdzv.Failure
	}
	for _, c := range []struct {
		name string
		told []told // one second after the other
		want int    // index
	}{
		{"one", []told{{0, rdzv.Failure{Grade: 5}}}, 0},
		{"better evidence", []told{{0, rdzv.Failure{Grade: 5, Age: 9 * sec}}, {1, rdzv.Failure{Grade: 1}}}, 1},
		{"the earlier one, though reported later", []told{{0, rdzv.Failure{Grade: 1, Age: sec}}, {1, rdzv.Failure{Grade: 1, Age: 5 * sec}}}, 1},
		{"the earlier one, by the time and not by the age", []told{{0, rdzv.Failure{Grade: 1, Age: sec}}, {1, rdzv.Failure{Grade: 1, Age: sec + 1}}}, 0},
		{"the lower rank", []told{{0, rdzv.Failure{Failure: failure.Failure{GlobalRank: 4}, Age: sec}}, {1, rdzv.Failure{Failure: failure.Failure{GlobalRank: 3}, Age: 2 * sec}}}, 1},
		{"a node finds that its failure is a victim's", []told{
			{0, rdzv.Failure{Grade: 1}}, {1, rdzv.Failure{Grade: 2}}, {2, rdzv.Failure{Grade: 1}}, {0, rdzv.Failure{Grade: 3, Age: 3 * sec}},
		}, 2},
		{"one who was absent, where one has waited", []told{
			{0, rdzv.Failure{Failure: failure.Failure{Waited: true}, Grade: 4, Age: 5 * sec}}, {1, rdzv.Failure{Grade: 4, Age: 5 * sec}}, {2, rdzv.Failure{Grade: 4, Absent: true, OnlyStopped: true}},
		}, 2},
		{"none who was absent, where a connection was lost", []told{
			{0, rdzv.Failure{Grade: 4, Age: 9 * sec}}, {1, rdzv.Failure{Failure: failure.Failure{Waited: true}, Grade: 4}}, {2, rdzv.Failure{Grade: 4, Absent: true, OnlyStopped: true}},
		}, 0},
		{"nor where one has failed", []told{
			{0, rdzv.Failure{Failure: failure.Failure{Waited: true}, Grade: 4, Age: 9 * sec}}, {1, rdzv.Failure{Grade: 1}}, {2, rdzv.Failure{Grade: 4, Absent: true, OnlyStopped: true}},
		}, 1},
		{"one that was told to stop", []told{{0, rdzv.Failure{Grade: 3}}, {1, rdzv.Failure{Grade: 1, OnlyStopped: true}}}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b failureReports
			now := 100 * sec
			for i, one := range c.told {
				one.f.PID = i
				now += sec
				b.record(now, one.node, one.f)
			}
			want := c.told[c.want].f
			want.PID = c.want
			want.Age += time.Duration(len(c.told)-c.want-1)*sec + 10*sec
			cause, _ := b.causes(now + 10*sec)
			if diff := cmp.Diff(&want, cause); diff != "" || !b.anyFailed {
				t.Error(diff)
			}
		})
	}
}

// A report that comes twice does not make its failure younger.
func TestBlameKeepsTheTime(t *testing.T) {
	var b failureReports
	f := rdzv.Failure{Failure: failure.Failure{PID: 7}, Age: time.Second}
	b.record(10*time.Second, 0, f)
	b.record(60*time.Second, 0, f)
	if cause, _ := b.causes(60 * time.Second); cause.Age != 51*time.Second {
		t.Errorf("the failure is %v old", cause.Age)
	}
}

func TestBlameNamesOthers(t *testing.T) {
	var b failureReports
	for node := range 40 {
		b.record(0, node, rdzv.Failure{Failure: failure.Failure{GlobalRank: node, Text: "text", Summary: "s"}, Grade: 1 + node%2, Age: time.Duration(100 - node)})
	}
	cause, others := b.causes(0)
	if cause.GlobalRank != 0 || cause.Text != "text" || len(others) != rdzv.MaxOthers {
		t.Fatalf("cause %+v and %d others", cause, len(others))
	}
	for i, o := range others {
		if o.GlobalRank != 2*(i+1) || o.Text != "" || o.Summary != "s" {
			t.Errorf("other %d: %+v", i, o)
		}
	}
	if b = (failureReports{}); b.anyFailed {
		t.Error("a failure of nobody")
	}
	b.record(0, 1, rdzv.Failure{OnlyStopped: true})
	if b.anyFailed {
		t.Error("a worker that was stopped makes a failure")
	}
	b.record(0, 1, rdzv.Failure{Failure: failure.Failure{Stopped: true}}) // all that a new leader may have seen
	if !b.anyFailed {
		t.Error("a failure is none, since the likeliest to have caused it was stopped")
	}
}
