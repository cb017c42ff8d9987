package agent

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// remote returns the root cause in tests whose job fails on another node.
func remote() *rdzv.Failure {
	return &rdzv.Failure{Failure: failure.Failure{
		Host: "node7", GlobalRank: 60, LocalRank: 4, PID: 4711,
		Signal: syscall.SIGSEGV, Text: "Signal 11",
	}}
}

func failedElsewhere() rdzv.Outcome {
	return rdzv.Outcome{Ending: rdzv.EndFailed, Cause: remote(), Restarts: 2}
}

// checkRemote checks the part of a failed run that is the same on every node.
func checkRemote(t *testing.T, b *harness, r RunResult) {
	t.Helper()
	root, ok := r.RootCause()
	if !r.IsFailed() || r.Restarts != 2 || !ok || root.ShellCode() != 139 || root.Host != "node7" ||
		root.GlobalRank != 60 {
		t.Errorf("result %+v, root cause %+v", r, root)
	}
	if b.state() != Failed {
		t.Errorf("group left %v", b.state())
	}
	all := b.events.list()
	if last := all[len(all)-1]; last.Group.Restarts != 2 {
		t.Errorf("the last event counts %d restarts", last.Group.Restarts)
	}
	for name, want := range map[string]float64{
		"workers.default.run_failed_with_retries": 1, "workers.default.run_success_no_retries": 0,
		"run.success": 1,
	} {
		if got := b.metrics.Get(name); got.Count != 1 || got.Last != want {
			t.Errorf("metric %s = %+v, want %v", name, got, want)
		}
	}
	b.wantMetric(t, "workers.default.flakiness", 100)
	for _, name := range []string{"restart_workers.failure", "initialize_workers.failure", "rendezvous.failure"} {
		if got := b.metrics.Get(name); got.Count != 0 {
			t.Errorf("metric %s = %+v: the end of the job is no failure of a step", name, got)
		}
	}
}

func TestJobFailsElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, WorkerSpec{MaxRestarts: 2}, runsOn)
		b.rdzv.endAt(1, failedElsewhere())
		wait := b.start(t.Context())
		b.rdzv.stops <- rdzv.Stop{Round: 0, Why: "a worker of node7 failed"}
		r, err := wait()
		if err != nil || len(r.Failures) != 0 {
			t.Errorf("result %+v, %v", r, err)
		}
		checkRemote(t, b, r)
		want := []string{"TERMINATED worker 100", "TERMINATED worker 101", "SUCCEEDED agent"}
		if got := b.states(); !cmp.Equal(want, got[len(got)-3:]) {
			t.Errorf("last events %v, want %v", got, want)
		}
	})
}

// A failure on this node is reported, too, but is not the root cause.
func TestJobFailsElsewhereAndHere(t *testing.T) {
	b := newHarness(t, WorkerSpec{MaxRestarts: 2}, exits(procs.Exit{LocalRank: 1, Code: 3}))
	outcome := failedElsewhere()
	b.rdzv.outcome = &outcome
	r := b.run(t)
	checkRemote(t, b, r)
	if all := r.ordered(); len(all) != 2 || all[1].ExitCode != 3 || all[1].Host != b.agent.hostname {
		t.Errorf("failures %+v", all)
	}
}

// A node knows more about a root cause of its own than the other nodes do.
func TestRootCauseIsOwn(t *testing.T) {
	b := newHarness(t, WorkerSpec{LocalWorldSize: 3}, func(g *fakeGroup) {
		g.tails[1], g.tails[2] = []string{"ValueError: boom"}, []string{"KeyError: 0"}
		g.exit(procs.Exit{LocalRank: 2, Code: 4})
		g.exit(procs.Exit{LocalRank: 1, Code: 3})
	})
	// The rendezvous may name the other one of the two.
	b.rdzv.outcome = &rdzv.Outcome{
		Ending: rdzv.EndFailed,
		Cause: &rdzv.Failure{Failure: failure.Failure{
			Host: b.agent.hostname, GlobalRank: 2, LocalRank: 2, PID: 102,
			ExitCode: 4, Text: "sent",
		}},
	}
	r := b.run(t)
	root, _ := r.RootCause()
	if root.LocalRank != 2 || root.Text != "last lines of stderr:\n  KeyError: 0" {
		t.Errorf("root cause %+v", root)
	}
	if all := r.ordered(); len(all) != 2 || all[1].LocalRank != 1 {
		t.Errorf("failures %+v", all)
	}
}

// A spare that never ran, or a node that arrives too late, ends like the job.
func TestJobEndsWithoutThisNode(t *testing.T) {
	t.Run("it succeeded", func(t *testing.T) {
		b := newHarness(t, WorkerSpec{})
		b.rdzv.endAt(0, rdzv.Outcome{Ending: rdzv.EndSucceeded, Restarts: 1})
		r := b.run(t)
		if _, known := r.RootCause(); r.State != Succeeded || r.Restarts != 1 || known || b.state() != Succeeded {
			t.Errorf("result %+v, group left %v", r, b.state())
		}
		if diff := cmp.Diff([]string{"SUCCEEDED agent"}, b.states()); diff != "" {
			t.Errorf("events of workers that never were (-want +got):\n%s", diff)
		}
		if want := `nothing was started here: run "run-1" succeeded without this node`; r.NothingStarted != want ||
			r.Note() != "" {
			t.Errorf("%q, note %q", r.NothingStarted, r.Note())
		}
	})
	t.Run("it had finished before", func(t *testing.T) {
		for ending, want := range map[rdzv.Ending]string{
			rdzv.EndSucceeded: `nothing was started here: run "run-1" already finished (succeeded 3s ago on a)`,
			rdzv.EndFailed:    `nothing was started here: run "run-1" already finished (failed 3s ago on a)`,
		} {
			b := newHarness(t, WorkerSpec{})
			b.rdzv.failAt, b.rdzv.err = 0, &rdzv.EndedError{
				Outcome: rdzv.Outcome{Ending: ending}, Late: &rdzv.Late{Ago: 3 * time.Second, Hosts: []string{"a"}, HostCount: 1},
			}
			r := b.run(t)
			if r.NothingStarted != want || r.IsFailed() != (ending == rdzv.EndFailed) || r.IsFailed() != (r.Note() == want) {
				t.Errorf("%s: %+v, note %q", ending, r, r.Note())
			}
		}
	})
	t.Run("it failed", func(t *testing.T) {
		b := newHarness(t, WorkerSpec{MaxRestarts: 2})
		b.rdzv.endAt(0, failedElsewhere())
		r := b.run(t)
		checkRemote(t, b, r)
		b.wantCalls(t, "rendezvous")
	})
	t.Run("it succeeded after this node was quarantined", func(t *testing.T) {
		b := newHarness(t, WorkerSpec{}, exits(procs.Exit{LocalRank: 0, Code: 1}))
		b.rdzv.outcome = &rdzv.Outcome{Ending: rdzv.EndSucceeded}
		if r := b.run(t); r.State != Succeeded || len(r.Failures) != 0 || r.NothingStarted != "" {
			t.Errorf("result %+v", r)
		}
		if got := b.states(); !slices.Contains(got, "TERMINATED worker 100") {
			t.Errorf("events %v: no worker of this node succeeded", got)
		}
	})
}

func TestEndingsThatAreErrors(t *testing.T) {
	for ending, kind := range map[rdzv.Ending]error{
		rdzv.EndTimeout: rdzv.ErrTimeout, rdzv.EndClosed: rdzv.ErrClosed, rdzv.EndNodeLost: rdzv.ErrClosed,
	} {
		b := newHarness(t, WorkerSpec{MaxRestarts: 1}, exits(procs.Exit{LocalRank: 0, Code: 1}))
		b.rdzv.endAt(1, rdzv.Outcome{Ending: ending})
		r, err := b.agent.Run(t.Context())
		if !errors.Is(err, kind) || b.state() != Stopped {
			t.Errorf("%s: %v, group left %v", ending, err, b.state())
		}
		if len(r.Failures) != 1 {
			t.Errorf("%s: the failure before it is not reported: %+v", ending, r)
		}
		if got := b.metrics.Get("rendezvous.failure"); got.Count != 1 {
			t.Errorf("%s: rendezvous.failure = %+v", ending, got)
		}
	}
}

// After its own success a node ends like the other nodes.
func TestEndAfterSuccess(t *testing.T) {
	ended := func(o rdzv.Outcome) func(int) (*rdzv.Stop, error) {
		return func(int) (*rdzv.Stop, error) { return nil, fmt.Errorf("wait: %w", &rdzv.EndedError{Outcome: o}) }
	}
	t.Run("another node failed for the last time", func(t *testing.T) {
		b := newHarness(t, WorkerSpec{MaxRestarts: 2}, allSucceed)
		b.rdzv.succeed = ended(failedElsewhere())
		checkRemote(t, b, b.run(t))
		if got := b.states(); !slices.Contains(got, "SUCCEEDED worker 100") {
			t.Errorf("events %v: this node's workers succeeded", got)
		}
	})
	t.Run("the job succeeded", func(t *testing.T) {
		b := newHarness(t, WorkerSpec{}, allSucceed)
		b.rdzv.succeed = ended(rdzv.Outcome{Ending: rdzv.EndSucceeded})
		if r := b.run(t); r.State != Succeeded {
			t.Errorf("result %+v", r)
		}
	})
}

// A restart window allows more restarts than the budget. Then the number of remaining restarts is 0, not negative.
func TestRestartsBeyondBudget(t *testing.T) {
	b := newHarness(t, WorkerSpec{MaxRestarts: 1}, allSucceed)
	b.rdzv.restarts = 5
	if r := b.run(t); r.Restarts != 5 {
		t.Errorf("result %+v", r)
	}
	for name, want := range map[string]float64{"remaining_restarts": 0, "flakiness": 50, "run_success_with_retries": 1} {
		b.wantMetric(t, "workers.default."+name, want)
	}
	if diff := cmp.Diff([]string{"5/0/false"}, b.folders.names); diff != "" {
		t.Errorf("attempt folders of a node that came late (-want +got):\n%s", diff)
	}
}
