package agent

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRunSucceeds(t *testing.T) {
	b := newHarness(t, WorkerSpec{MaxRestarts: 3}, allSucceed)
	r := b.run(t)
	if r.State != Succeeded || r.IsFailed() || r.Restarts != 0 || len(r.Failures) != 0 {
		t.Errorf("result %+v", r)
	}
	b.wantCalls(t, "rendezvous", "stop SIGTERM", "succeed")
	want := []string{
		"RENDEZVOUS agent", "ASSIGN_WORKER_RANKS agent", "START worker 100", "START worker 101",
		"SUCCEEDED worker 100", "SUCCEEDED worker 101", "SUCCEEDED agent",
	}
	if diff := cmp.Diff(want, b.states()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	for name, want := range map[string]float64{
		"workers.default.run_total": 1, "workers.default.run_success_no_retries": 1,
		"workers.default.run_success_with_retries": 0, "workers.default.run_failed_no_retries": 0,
		"workers.default.run_failed_with_retries": 0, "workers.default.flakiness": 0,
		"workers.default.remaining_restarts": 3, "workers.default.succeeded": 1,
		"run.success": 1, "rendezvous.success": 1, "initialize_workers.success": 1, "assign_worker_ranks.success": 1,
	} {
		b.wantMetric(t, name, want)
	}
	if got := b.metrics.Get("run.duration.ms"); got.Count != 1 {
		t.Errorf("run.duration.ms = %+v", got)
	}
	if got := b.launcher.groups[0].policies; len(got) != 1 || got[0].Signal != syscall.SIGTERM {
		t.Errorf("leftovers of a group that succeeded were not ended: %+v", got)
	}
}

func TestRunRestartsOnceAndSucceeds(t *testing.T) {
	b := newHarness(t, WorkerSpec{MaxRestarts: 1}, exits(procs.Exit{LocalRank: 1, Code: 7}), allSucceed)
	r := b.run(t)
	if r.State != Succeeded || r.Restarts != 1 {
		t.Errorf("result %+v", r)
	}
	if diff := cmp.Diff([]string{"0/0/false", "1/1/false"}, b.folders.names); diff != "" {
		t.Errorf("attempt folders (-want +got):\n%s", diff)
	}
	for start, want := range []string{"0", "1"} {
		env := b.launcher.specs[start][0].Env
		if !slices.Contains(env, "TORCHELASTIC_RESTART_COUNT="+want) {
			t.Errorf("start %d: environment %v", start, env)
		}
	}
	b.wantMetric(t, "workers.default.run_success_with_retries", 1)
	b.wantMetric(t, "workers.default.flakiness", 50)
	if got := b.metrics.Get("restart_workers.success"); got.Count != 1 {
		t.Errorf("restart_workers = %+v", got)
	}
}

func TestRunFails(t *testing.T) {
	b := newHarness(t, WorkerSpec{MaxRestarts: 1, LocalWorldSize: 3},
		exits(procs.Exit{LocalRank: 0, Code: 3}), exits(procs.Exit{LocalRank: 1, Code: 7}))
	r := b.run(t)
	if !r.IsFailed() || r.Restarts != 1 {
		t.Errorf("result %+v", r)
	}
	root, ok := r.RootCause()
	if !ok || root.GlobalRank != 1 || root.ShellCode() != 7 || len(r.Failures) != 1 {
		t.Errorf("failures %+v: victims of the stop must not be among them", r.Failures)
	}
	want := []string{"TERMINATED worker 200", "FAILED worker 201", "TERMINATED worker 202", "SUCCEEDED agent"}
	if got := b.states(); !cmp.Equal(want, got[len(got)-4:]) {
		t.Errorf("last events %v, want %v", got, want)
	}
	b.wantMetric(t, "workers.default.run_failed_with_retries", 1)
	b.wantMetric(t, "workers.default.flakiness", 100)
	if b.state() != Failed {
		t.Errorf("group left %v", b.state())
	}
}

func TestSignalStopsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, WorkerSpec{MaxRestarts: 5}, runsOn)
		ctx, cancel := context.WithCancelCause(t.Context())
		wait := b.start(ctx)
		cancel(&SignalError{Signal: syscall.SIGINT})
		_, err := wait()
		var cause *SignalError
		if !errors.As(err, &cause) || cause.Signal != syscall.SIGINT {
			t.Errorf("error %v", err)
		}
		want := []procs.StopPolicy{{
			Signal: syscall.SIGINT, Grace: 30 * time.Second, Leftovers: 30 * time.Second,
			Advice: "press Ctrl-C again after a second to kill them now",
		}}
		if diff := cmp.Diff(want, b.group().policies, cmpopts.IgnoreFields(procs.StopPolicy{}, "KillNow")); diff != "" {
			t.Errorf("stop policies (-want +got):\n%s", diff)
		}
		b.wantCalls(t, "rendezvous", "leave", "stop SIGINT")
		if b.state() != Stopped {
			t.Errorf("group left %v", b.state())
		}
		if got := b.states(); got[len(got)-1] != "FAILED agent" {
			t.Errorf("last event %v", got[len(got)-1])
		}
	})
}

func TestLostGuardKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, WorkerSpec{}, runsOn)
		ctx, cancel := context.WithCancelCause(t.Context())
		wait := b.start(ctx)
		gone := errors.New("guard gone")
		cancel(gone)
		if _, err := wait(); !errors.Is(err, gone) {
			t.Errorf("error %v", err)
		}
		if l := b.launcher.groups[0].policies; len(l) != 1 || l[0].Signal != syscall.SIGKILL || l[0].Grace != 0 {
			t.Errorf("stop policies %+v", l)
		}
	})
}

func TestRunErrors(t *testing.T) {
	boom := errors.New("boom")
	tests := []struct {
		name   string
		change func(b *harness)
		script []func(*fakeGroup)
		is     error
		state  WorkerState
		// failures is how many failures of the last round the result has
		failures int
	}{
		{
			name:   "first rendezvous times out",
			change: func(b *harness) { b.rdzv.err, b.rdzv.failAt = rdzv.ErrTimeout, 0 },
			is:     rdzv.ErrTimeout, state: Stopped,
		},
		{
			name:   "rendezvous is lost at a restart",
			change: func(b *harness) { b.rdzv.err, b.rdzv.failAt = rdzv.ErrConnection, 1 },
			script: []func(*fakeGroup){exits(procs.Exit{LocalRank: 0, Code: 1})},
			is:     rdzv.ErrConnection, state: Stopped, failures: 1,
		},
		{
			name:   "workers cannot be launched",
			change: func(b *harness) { b.launcher.err = boom },
			is:     boom, state: Unknown,
		},
		{
			name:   "a process does not die before a restart",
			script: []func(*fakeGroup){func(g *fakeGroup) { g.stopErr = boom; g.exit(procs.Exit{LocalRank: 1, Code: 1}) }},
			is:     boom, state: Unknown, failures: 1,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newHarness(t, WorkerSpec{MaxRestarts: 1}, tt.script...)
			if tt.change != nil {
				tt.change(b)
			}
			r, err := b.agent.Run(t.Context())
			if !errors.Is(err, tt.is) {
				t.Errorf("error %v, want %v", err, tt.is)
			}
			if len(r.Failures) != tt.failures {
				t.Errorf("failures of the last round: %+v, want %d", r.Failures, tt.failures)
			}
			if b.state() != tt.state {
				t.Errorf("group left %v, want %v", b.state(), tt.state)
			}
			if got := b.metrics.Get("run.failure"); got.Count != 1 {
				t.Errorf("run.failure = %+v", got)
			}
		})
	}
}

func TestSpecsOfWorkers(t *testing.T) {
	b := newHarness(t, WorkerSpec{MasterAddr: "m", MasterPort: 5}, allSucceed)
	b.rdzv.nodes, b.rdzv.rank = 3, 2
	b.run(t)
	joined := rdzv.Member{Role: "default", LocalWorldSize: 2, MasterAddr: "m", MasterPort: 5}
	if diff := cmp.Diff(joined, b.rdzv.seen[0]); diff != "" {
		t.Errorf("joined as (-want +got):\n%s", diff)
	}
	spec := b.launcher.specs[0][1]
	if diff := cmp.Diff([]string{"/usr/bin/python3", "-u", "train.py", "--rank=1"}, spec.Argv); diff != "" {
		t.Errorf("argv (-want +got):\n%s", diff)
	}
	for _, want := range []string{
		"RANK=5", "LOCAL_RANK=1", "WORLD_SIZE=6", "GROUP_RANK=2", "HOME=/h",
		"MASTER_PORT=1234",
	} {
		if !slices.Contains(spec.Env, want) {
			t.Errorf("environment lacks %s: %v", want, spec.Env)
		}
	}
	g := b.agent.WorkerGroup()
	want := Worker{PID: 101, LocalRank: 1, GlobalRank: 5, RoleRank: 5, WorldSize: 6, RoleWorldSize: 6}
	if diff := cmp.Diff(want, g.Workers[1]); diff != "" {
		t.Errorf("worker (-want +got):\n%s", diff)
	}
	if g.GroupRank != 2 || g.GroupWorldSize != 3 || g.Round != 0 || g.State != Succeeded || g.MasterAddr == "" {
		t.Errorf("worker group %+v", g)
	}
	if text := want.String(); text != "local_rank=1,global_rank=5,role_rank=5,world_size=6,role_world_size=6" {
		t.Errorf("Worker.String() = %q", text)
	}
}

func TestErrorFileReachesReport(t *testing.T) {
	b := newHarness(t, WorkerSpec{}, nil)
	b.launcher.script[0] = func(g *fakeGroup) {
		file := ""
		for _, kv := range b.launcher.specs[0][1].Env {
			if p, ok := strings.CutPrefix(kv, "TORCHELASTIC_ERROR_FILE="); ok {
				file = p
			}
		}
		text := `{"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "Traceback:\n  here\nValueError: no", "timestamp": "1700000000"}}}`
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Error(err)
		}
		g.exit(procs.Exit{LocalRank: 1, Code: 1})
	}
	r := b.run(t)
	root, _ := r.RootCause()
	// No worker ran at the time in the file.
	if root.RawErrorFile == "" || root.Message != "ValueError: no" || time.Since(root.Time) > time.Minute {
		t.Errorf("root cause %+v", root)
	}
	all := b.events.list()
	if raw := all[len(all)-2]; !strings.Contains(raw.RawError, "no") {
		t.Errorf("event %v has no raw error", raw)
	}
}

func TestLogFolderThatIsFull(t *testing.T) {
	full := errors.New("no space left")
	b := newHarness(t, WorkerSpec{}, allSucceed)
	b.folders.err, b.folders.optional = full, true
	if r := b.run(t); r.State != Succeeded {
		t.Errorf("a job that asked for no logs: %+v", r)
	}
	if env := b.launcher.specs[0][1].Env; !slices.Contains(env, "TORCHELASTIC_ERROR_FILE=") {
		t.Errorf("environment %v", env)
	}
	b = newHarness(t, WorkerSpec{}, allSucceed)
	b.folders.err = full
	if _, err := b.agent.Run(t.Context()); !errors.Is(err, full) {
		t.Errorf("a job that asked for logs: %v", err)
	}
	b = newHarness(t, WorkerSpec{MaxRestarts: 1}, exits(procs.Exit{LocalRank: 1, Code: 7}), allSucceed)
	fails := b.launcher.script[0]
	b.launcher.script[0] = func(g *fakeGroup) {
		b.folders.err = full
		fails(g)
	}
	if r := b.run(t); r.State != Succeeded {
		t.Errorf("a job that asked for logs, at a restart: %+v", r)
	}
}

func TestForwardedSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, WorkerSpec{}, runsOn)
		forward := make(chan os.Signal, 1)
		b.agent.opts.Forward = forward
		wait := b.start(t.Context())
		forward <- syscall.SIGUSR1
		synctest.Wait()
		g := b.launcher.groups[0]
		if !slices.Equal(g.signals, []syscall.Signal{syscall.SIGUSR1}) || len(g.policies) != 0 {
			t.Errorf("signals %v, stops %v", g.signals, g.policies)
		}
		allSucceed(g)
		if _, err := wait(); err != nil {
			t.Error(err)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	good := WorkerSpec{LocalWorldSize: 1, Entrypoint: "e"}
	for want, change := range map[string]func(*Options){
		"agent: Options.Rendezvous is nil":                              func(o *Options) { o.Rendezvous = nil },
		"agent: Options.Launcher is nil":                                func(o *Options) { o.Launcher = nil },
		"worker spec: local world size 0: must be at least 1":           func(o *Options) { o.Spec.LocalWorldSize = 0 },
		"worker spec: the entrypoint is empty":                          func(o *Options) { o.Spec.Entrypoint = "" },
		"worker spec: max restarts -1: must not be negative":            func(o *Options) { o.Spec.MaxRestarts = -1 },
		"worker spec: CPUs for 2 workers, but there are 1":              func(o *Options) { o.Spec.CPUs = [][]int{{0}, {1}} },
		"agent: Options.ShutdownTimeout is -1ns: must not be negative":  func(o *Options) { o.ShutdownTimeout = -1 },
		"agent: Options.RestartGrace is -1ns: must not be negative":     func(o *Options) { o.RestartGrace = -1 },
		"agent: Options.ErrorExitTimeout is -1ns: must not be negative": func(o *Options) { o.ErrorExitTimeout = -1 },
	} {
		o := Options{
			Spec: good, Rendezvous: newFakeRendezvous(&journal{}, 0), Launcher: &fakeLauncher{}, LogFolders: newFolders(t),
		}
		if _, err := New(o); err != nil {
			t.Fatal(err)
		}
		change(&o)
		if _, err := New(o); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Workers without a role have the role "default" in the rendezvous, in their environment and in events.
func TestDefaultRole(t *testing.T) {
	b := newHarness(t, WorkerSpec{}, allSucceed)
	b.run(t)
	if role := b.rdzv.seen[0].Role; role != DefaultRole {
		t.Errorf("rendezvous with role %q", role)
	}
	if env := b.launcher.groups[0].specs[0].Env; !slices.Contains(env, "ROLE_NAME="+DefaultRole) {
		t.Errorf("environment %q", env)
	}
	if role := b.events.list()[0].Group.Role; role != DefaultRole {
		t.Errorf("events of role %q", role)
	}
}

// The agent answers while it watches workers, and does not once Run has returned.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, WorkerSpec{}, runsOn)
		wait := b.start(t.Context())
		if !b.agent.Answers(t.Context()) {
			t.Error("no answer")
		}
		allSucceed(b.group())
		if _, err := wait(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if b.agent.Answers(ctx) {
			t.Error("an answer after the end")
		}
	})
}
