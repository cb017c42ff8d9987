package agent

import (
	"context"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// fakeLiveness reports a silence at once, and keeps the workers that it got.
type fakeLiveness struct {
	*journal
	workers []WatchedWorker
}

func (f *fakeLiveness) Run(ctx context.Context, workers []WatchedWorker, changed func(*rdzv.Quiet)) {
	f.workers = workers
	changed(&rdzv.Quiet{For: time.Minute})
	<-ctx.Done()
	f.note("not watched any more")
}

func TestLiveness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, WorkerSpec{}, runsOn)
		live := &fakeLiveness{journal: b.journal}
		b.agent.opts.Liveness, b.agent.opts.StepPattern = live, regexp.MustCompile(`step (\d+)`)
		b.agent.opts.WorkerDir = "/beats"
		wait := b.start(t.Context())
		if len(live.workers) != 2 || live.workers[1].PID != 101 || live.workers[1].Heartbeat != "/beats/0.1" {
			t.Fatalf("watched: %+v", live.workers)
		}
		stdout := b.group().specs[1].Stdout
		if stdout.Scan.Scan([]byte("step 4\n"), time.Now()); !stdout.Piped {
			t.Error("no pipe shows the steps")
		}
		b.group().specs[1].Stderr.Scan.Scan([]byte("warning\n"), time.Now())
		if n := live.workers[1].Output(); n != 15 {
			t.Errorf("%d bytes of output", n)
		}
		if step, ok := live.workers[1].Step(); step != 4 || !ok {
			t.Errorf("step %d, %v", step, ok)
		}
		if _, ok := live.workers[0].Step(); ok {
			t.Error("the other worker has a step too")
		}
		b.group().exit(procs.Exit{LocalRank: 0})
		b.group().exit(procs.Exit{LocalRank: 1})
		if _, err := wait(); err != nil {
			t.Fatal(err)
		}
		b.wantCalls(t, "rendezvous", "quiet for 1m0s", "not watched any more", "stop SIGTERM", "succeed")
	})
}

// Of a worker that writes its log files itself the files are watched.
func TestLivenessOfFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := WorkerSpec{Output: workerlog.OutputRules{Redirects: workerlog.StreamSpec{Default: workerlog.Stdout}}}
		b := newHarness(t, spec, exits(procs.Exit{LocalRank: 0}))
		live := &fakeLiveness{journal: b.journal}
		b.agent.opts.Liveness = live
		ctx, cancel := context.WithCancel(t.Context())
		wait := b.start(ctx)
		if f := live.workers[0].Files; len(f) != 1 || filepath.Base(f[0]) != "stdout.log" || live.workers[0].Step != nil {
			t.Errorf("watched: %+v", live.workers[0])
		}
		cancel()
		_, _ = wait()
	})
}

func TestHeartbeatFile(t *testing.T) {
	for _, tt := range []struct {
		name, dir string
		env       []string
		workers   int
		want      string
	}{
		{"no folder", "", nil, 2, ""},
		{"a folder", "/beats", nil, 2, "/beats/5.1"},
		{"the user's own, one worker", "/beats", []string{HeartbeatEnv + "=/mine"}, 1, "/mine"},
		{"the user's own, two workers", "/beats", []string{HeartbeatEnv + "=/mine"}, 2, "/beats/5.1"},
		{"an empty one", "/beats", []string{HeartbeatEnv + "="}, 1, "/beats/5.1"},
	} {
		in := input(append(slices.Clone(tt.env), "HOME=/h")...)
		in.WorkerDir = tt.dir
		if got := heartbeatFile(WorkerSpec{LocalWorldSize: tt.workers}, in.StartInput, 1); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
