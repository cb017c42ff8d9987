package agent

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// inBrief returns what matters about an event in one line.
func inBrief(r events.Event) string {
	text := string(r.Kind)
	if r.Round != nil {
		text += fmt.Sprintf(" round=%d/%d", *r.Round, *r.NodeRank)
	}
	if r.Verdict != "" {
		text += fmt.Sprintf(" %s nodes=%d world=%d restarts=%d/%d", r.Verdict, r.Nodes, r.WorldSize, *r.Restarts,
			*r.MaxRestarts)
	}
	if r.Rank != nil {
		text += fmt.Sprintf(" rank=%d/%d pid=%d", *r.Rank, *r.LocalRank, r.PID)
	}
	if r.ExitCode != nil {
		text += fmt.Sprintf(" code=%d", *r.ExitCode)
	}
	for _, more := range []string{r.Signal, r.Cause, r.Summary, r.Why} {
		if more != "" {
			text += " " + more
		}
	}
	if r.Stopped {
		text += " (stopped)"
	}
	return text
}

func TestEvents(t *testing.T) {
	for _, tt := range []struct {
		name   string
		script []func(*fakeGroup)
		stop   *rdzv.Stop
		want   []string
	}{
		{
			name: "a restart",
			script: []func(*fakeGroup){func(g *fakeGroup) {
				g.says(1, "ValueError: boom")
				g.exit(procs.Exit{LocalRank: 1, Code: 7})
			}, func(g *fakeGroup) {
				g.exit(procs.Exit{LocalRank: 0})
				g.exit(procs.Exit{LocalRank: 1})
			}},
			want: []string{
				"waiting",
				"round round=0/0 first nodes=1 world=2 restarts=0/1",
				"worker_started round=0/0 rank=0/0 pid=100",
				"worker_started round=0/0 rank=1/1 pid=101",
				"worker_ended round=0/0 rank=1/1 pid=101 code=7",
				"stop round=0/0 local rank 1: exited with code 7",
				"worker_ended round=0/0 rank=0/0 pid=100 code=143 SIGTERM (stopped)",
				"failure round=0/0 rank=1/1 pid=101 code=7 exception ValueError: boom",
				"waiting round=0/0",
				"round round=1/0 restart nodes=1 world=2 restarts=1/1",
				"worker_started round=1/0 rank=0/0 pid=200",
				"worker_started round=1/0 rank=1/1 pid=201",
				"worker_ended round=1/0 rank=0/0 pid=200 code=0",
				"worker_ended round=1/0 rank=1/1 pid=201 code=0",
				"succeeded round=1/0",
			},
		},
		{
			name:   "a membership change",
			script: []func(*fakeGroup){runsOn, allSucceed},
			stop:   &rdzv.Stop{Round: 0, Why: "a node came"},
			want: []string{
				"stop round=0/0 a node came",
				"round round=1/0 membership nodes=1 world=2 restarts=0/1",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newHarness(t, WorkerSpec{MaxRestarts: 1}, tt.script...)
				wait := b.start(t.Context())
				if tt.stop != nil {
					b.rdzv.stops <- *tt.stop
				}
				if _, err := wait(); err != nil {
					t.Fatal(err)
				}
				got := b.logged()
				if tt.stop != nil {
					got = slices.DeleteFunc(got, func(line string) bool { return !slices.Contains(tt.want, line) })
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestEventsOfASignal checks that the stop by a signal is emitted too.
func TestEventsOfASignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, WorkerSpec{}, runsOn)
		ctx, interrupt := context.WithCancelCause(t.Context())
		wait := b.start(ctx)
		synctest.Wait()
		interrupt(&SignalError{Signal: syscall.SIGINT})
		_, _ = wait()
		got := b.logged()
		slices.Sort(got[len(got)-2:]) // the fake stops them in any order
		want := []string{
			"stop round=0/0 received SIGINT",
			"worker_ended round=0/0 rank=0/0 pid=100 code=130 SIGINT (stopped)",
			"worker_ended round=0/0 rank=1/1 pid=101 code=130 SIGINT (stopped)",
		}
		if diff := cmp.Diff(want, got[len(got)-3:]); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestLastLines(t *testing.T) {
	b := newHarness(t, WorkerSpec{}, func(g *fakeGroup) {
		g.tails[1] = []string{"one", "two", " "}
		allSucceed(g)
	})
	if got := b.agent.LastLines(); got != nil {
		t.Errorf("before the start: %v", got)
	}
	b.run(t)
	if diff := cmp.Diff(map[int]string{1: "two"}, b.agent.LastLines()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
