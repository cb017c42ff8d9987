package agent

import (
	"errors"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// The other nodes learn of a failure before its siblings are stopped. The agent joins the next round after they are
// gone.
func TestFailureIsReportedFirst(t *testing.T) {
	b := newHarness(t, WorkerSpec{MaxRestarts: 1}, nil, allSucceed)
	b.launcher.script[0] = func(g *fakeGroup) {
		g.tails[1] = []string{"ValueError: boom"}
		g.exit(procs.Exit{LocalRank: 1, Code: 7})
	}
	b.rdzv.nodes, b.rdzv.rank = 3, 2
	if r := b.run(t); r.State != Succeeded || r.Restarts != 1 {
		t.Errorf("result %+v", r)
	}
	b.wantCalls(t, "rendezvous", "fail 5", "stop SIGTERM", "rendezvous", "stop SIGTERM", "succeed")
	sent := b.rdzv.sent[0]
	sent.Age = 0
	wantFailure := rdzv.Failure{
		Failure: failure.Failure{
			Host: b.agent.hostname, GlobalRank: 5, LocalRank: 1, PID: 101, ExitCode: 7, Kind: failure.Exception,
			Summary: "ValueError: boom",
			Text:    "last lines of stderr:\n  ValueError: boom",
		},
		Grade: failure.GradeOwnFault,
	}
	if diff := cmp.Diff(wantFailure, sent, cmpopts.IgnoreFields(failure.Failure{}, "Findings")); diff != "" {
		t.Errorf("sent to others (-want +got):\n%s", diff)
	}
	if first, second := b.rdzv.seen[0].Failure, b.rdzv.seen[1].Failure; first != nil || second == nil ||
		second.PID != 101 {
		t.Errorf("failures of members: %v, %v", first, second)
	}
	if diff := cmp.Diff([]string{"0/0/false", "1/1/false"}, b.folders.names); diff != "" {
		t.Errorf("attempt folders (-want +got):\n%s", diff)
	}
}

// The failure that the member sends at the end is the likeliest cause, which need not be the first that was seen.
func TestLikeliestFailureIsReported(t *testing.T) {
	b := newHarness(t, WorkerSpec{MaxRestarts: 1}, nil, allSucceed)
	b.launcher.script[0] = func(g *fakeGroup) {
		g.says(0, "RuntimeError: Connection closed by peer")
		g.exit(procs.Exit{LocalRank: 0, Code: 1})
		g.exit(procs.Exit{LocalRank: 1, Signal: syscall.SIGSEGV})
	}
	b.run(t)
	if len(b.rdzv.sent) != 1 || b.rdzv.sent[0].Grade != failure.GradePeer {
		t.Errorf("sent %+v, want the first failure alone", b.rdzv.sent)
	}
	if f := b.rdzv.seen[1].Failure; f == nil || f.LocalRank != 1 || f.Signal != syscall.SIGSEGV ||
		f.Grade != failure.GradeCrash {
		t.Errorf("the member's failure is %+v", f)
	}
}

func TestStopRunsAgain(t *testing.T) {
	for _, tt := range []struct {
		name    string
		stop    func(r *fakeRendezvous)
		folders []string
		env     []string
	}{
		{
			name:    "a membership change",
			stop:    func(r *fakeRendezvous) { r.stops <- rdzv.Stop{Round: 0, Why: "a node came"} },
			folders: []string{"0/0/false", "0/1/true"},
			env:     []string{"TORCHELASTIC_RESTART_COUNT=0", "ELASTICRUN_ROUND=1"},
		},
		{
			name:    "a failure elsewhere",
			stop:    func(r *fakeRendezvous) { r.failElsewhere(0) },
			folders: []string{"0/0/false", "1/1/false"},
			env:     []string{"TORCHELASTIC_RESTART_COUNT=1", "ELASTICRUN_ROUND=1"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newHarness(t, WorkerSpec{MaxRestarts: 0}, runsOn, allSucceed)
				wait := b.start(t.Context())
				tt.stop(b.rdzv)
				if r, err := wait(); err != nil || r.State != Succeeded || r.Restarts != b.rdzv.restarts {
					t.Errorf("result %+v, %v", r, err)
				}
				b.wantCalls(t, "rendezvous", "stop SIGTERM", "rendezvous", "stop SIGTERM", "succeed")
				if f := b.rdzv.seen[1].Failure; f != nil {
					t.Errorf("a victim of the stop was sent as a failure: %+v", f)
				}
				if diff := cmp.Diff(tt.folders, b.folders.names); diff != "" {
					t.Errorf("attempt folders (-want +got):\n%s", diff)
				}
				for _, want := range tt.env {
					if !slices.Contains(b.launcher.specs[1][0].Env, want) {
						t.Errorf("environment lacks %s", want)
					}
				}
			})
		})
	}
}

// A Stop of an earlier round is ignored, because its workers are gone. The agent still knows which workers exited with
// 0 before.
func TestStaleStopIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, WorkerSpec{MaxRestarts: 1}, exits(procs.Exit{LocalRank: 0, Code: 1}),
			exits(procs.Exit{LocalRank: 0}))
		wait := b.start(t.Context())
		b.rdzv.stops <- rdzv.Stop{Round: 0, Why: "late"}
		synctest.Wait()
		if len(b.group().policies) != 0 {
			t.Fatal("the workers of round 1 were stopped for one of round 0")
		}
		b.group().exit(procs.Exit{LocalRank: 1})
		if r, err := wait(); err != nil || r.State != Succeeded {
			t.Errorf("result %+v, %v", r, err)
		}
	})
}

// A failure and a Stop arrive at the same time. Whichever is seen first, the failure is not lost, and there is one
// stop.
func TestFailureAndStopAtOnce(t *testing.T) {
	stop := rdzv.Stop{Round: 0, Why: "a worker of node7 failed"}
	for _, tt := range []struct {
		name   string
		before bool // the Stop is there when the worker fails
		want   []string
	}{
		{"the failure first", false, []string{
			"rendezvous", "fail 1", "stop SIGTERM", "rendezvous", "stop SIGTERM",
			"succeed",
		}},
		{"the stop first", true, []string{"rendezvous", "stop SIGTERM", "rendezvous", "stop SIGTERM", "succeed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newHarness(t, WorkerSpec{MaxRestarts: 1}, runsOn, allSucceed)
				wait := b.start(t.Context())
				g, failed := b.group(), procs.Exit{LocalRank: 1, Code: 9}
				g.onStop = func(*fakeGroup, procs.StopPolicy) {
					if tt.before {
						g.exit(failed) // it had ended before the stop began
					} else {
						b.rdzv.stops <- stop
						synctest.Wait()
					}
				}
				if tt.before {
					b.rdzv.stops <- stop
				} else {
					g.exit(failed)
				}
				if r, err := wait(); err != nil || r.State != Succeeded || r.Restarts != 1 {
					t.Errorf("result %+v, %v", r, err)
				}
				b.wantCalls(t, tt.want...)
				if f := b.rdzv.seen[1].Failure; f == nil || f.ExitCode != 9 {
					t.Errorf("the member's failure is %+v", f)
				}
			})
		})
	}
}

func TestSucceedRunsAgain(t *testing.T) {
	b := newHarness(t, WorkerSpec{}, allSucceed, allSucceed)
	b.rdzv.succeed = func(call int) (*rdzv.Stop, error) {
		if call == 1 {
			return &rdzv.Stop{Round: 0, Why: "node7 went"}, nil
		}
		return nil, nil
	}
	if r := b.run(t); r.State != Succeeded {
		t.Errorf("result %+v", r)
	}
	b.wantCalls(t, "rendezvous", "stop SIGTERM", "succeed", "rendezvous", "stop SIGTERM", "succeed")
	if diff := cmp.Diff([]string{"0/0/false", "0/1/true"}, b.folders.names); diff != "" {
		t.Errorf("attempt folders (-want +got):\n%s", diff)
	}
	if got := b.metrics.Get("restart_workers.success"); got.Count != 1 {
		t.Errorf("restart_workers.success = %+v", got)
	}
}

// The failure of a round is not reported for a later one.
func TestRoundsBeginAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, WorkerSpec{MaxRestarts: 1}, exits(procs.Exit{LocalRank: 0, Code: 1}), allSucceed, runsOn)
		b.rdzv.succeed = func(int) (*rdzv.Stop, error) { return &rdzv.Stop{Round: 1, Why: "node7 went"}, nil }
		b.rdzv.endAt(3, failedElsewhere())
		wait := b.start(t.Context())
		b.rdzv.stops <- rdzv.Stop{Round: 2, Why: "a worker of node7 failed"}
		r, err := wait()
		if err != nil || len(r.Failures) != 0 {
			t.Errorf("result %+v, %v", r, err)
		}
		var failed []bool
		for _, self := range b.rdzv.seen {
			failed = append(failed, self.Failure != nil)
		}
		if diff := cmp.Diff([]bool{false, true, false, false}, failed); diff != "" {
			t.Errorf("members with a failure (-want +got):\n%s", diff)
		}
		if got := b.states(); !slices.Contains(got, "TERMINATED worker 300") {
			t.Errorf("events %v: the workers of the last round were stopped", got)
		}
	})
}

// After a Stop that arrives while the leftovers of successful workers are stopped, the agent does not wait for other
// nodes.
func TestStopAfterSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, WorkerSpec{}, nil, allSucceed)
		b.launcher.script[0] = func(g *fakeGroup) {
			g.onStop = func(*fakeGroup, procs.StopPolicy) {
				b.rdzv.stops <- rdzv.Stop{Round: 0, Why: "node7 went"}
				synctest.Wait()
			}
			allSucceed(g)
		}
		b.run(t)
		b.wantCalls(t, "rendezvous", "stop SIGTERM", "rendezvous", "stop SIGTERM", "succeed")
	})
}

// A Stop for the store's silence that comes when all workers have exited with 0 is the rendezvous' to judge: the agent
// calls Succeed, which repeats it if it counts.
func TestStopForSilenceAfterExits(t *testing.T) {
	t.Parallel()
	for range 20 { // the order in which Stop and exits are received is random
		b := newHarness(t, WorkerSpec{}, nil, allSucceed)
		b.launcher.script[0] = func(g *fakeGroup) {
			b.rdzv.stops <- rdzv.Stop{Round: 0, Why: "no answer for 8s", Silence: true}
			allSucceed(g)
		}
		b.run(t)
		b.wantCalls(t, "rendezvous", "stop SIGTERM", "succeed")
	}
}

// A worker that cannot be executed is a failure like any other.
func TestStartThatFails(t *testing.T) {
	b := newHarness(t, WorkerSpec{}, exits(procs.Exit{
		LocalRank: 0, Code: 127,
		StartErr: errors.New("execute ./x: not found"),
	}))
	r := b.run(t)
	if root, _ := r.RootCause(); !r.IsFailed() || root.Kind != failure.NotFound || root.ShellCode() != 127 {
		t.Errorf("result %+v", r)
	}
	if f := b.rdzv.sent[0]; f.Text != "could not be executed: execute ./x: not found" || f.ExitCode != 127 {
		t.Errorf("sent %+v", f)
	}
}
