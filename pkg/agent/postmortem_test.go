package agent

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// hangingKernel does not answer until it is released.
type hangingKernel struct{ released chan struct{} }

func (hangingKernel) Memory() evidence.Memory                    { return evidence.Memory{} }
func (hangingKernel) Core(int, syscall.Signal, time.Time) string { return "" }
func (hangingKernel) Mark()                                      {}
func (hangingKernel) Switches(int) uint64                        { return 0 }
func (hangingKernel) State(int) byte                             { return 0 }
func (k hangingKernel) Log() (none evidence.KernelLog)           { <-k.released; return none }

// A source of evidence that hangs delays the job once, and the rest of the evidence counts.
func TestPostmortemIsBounded(t *testing.T) {
	for _, tt := range []struct {
		name, missing, summary string
		hang                   func(b *harness, released chan struct{})
	}{
		{"the kernel", "the kernel's log and counters", "ValueError: boom", func(b *harness, released chan struct{}) {
			b.agent.opts.Kernel = hangingKernel{released}
			b.group().says(1, "ValueError: boom")
		}},
		{"a disk", "stderr.log", "exited with code 1", func(b *harness, released chan struct{}) {
			b.group().onTail = func() { <-released } // whoever asks again takes the bound again
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				released := make(chan struct{})
				defer close(released)
				b := newHarness(t,
					WorkerSpec{Output: workerlog.OutputRules{Redirects: workerlog.StreamSpec{Default: workerlog.AllStreams}}}, runsOn)
				var log bytes.Buffer
				b.agent.opts.Logger = zerolog.New(&log)
				b.agent.log = b.agent.opts.Logger
				wait := b.start(t.Context())
				tt.hang(b, released)
				begun := time.Now()
				b.group().exit(procs.Exit{LocalRank: 1, Code: 1, At: time.Now()})
				r, err := wait()
				root, _ := r.RootCause()
				if took := time.Since(begun); err != nil || took < readTimeout || took > readTimeout+duplicateSignalWait {
					t.Errorf("%v after %v", err, took)
				}
				if root.LocalRank != 1 || root.Summary != tt.summary || len(r.Failures) != 1 ||
					!strings.Contains(root.ErrorFileProblem, "was not read") {
					t.Errorf("root cause %+v", root)
				}
				if text := log.String(); strings.Count(text, "evidence is incomplete") != 1 || !strings.Contains(text, tt.missing) {
					t.Errorf("log: %s", text)
				}
			})
		})
	}
}

// A worker that obeys a stop and exits with 0 is not to blame for what it had shown before.
func TestStoppedWithSuccess(t *testing.T) {
	for _, tt := range []struct {
		name  string
		shown string // by the worker that is stopped
		want  int    // the root cause
	}{
		{"an exception, which it must have handled", "ValueError: boom", 0},
		{"a peer's end", "RuntimeError: Connection reset by peer", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newHarness(t, WorkerSpec{}, func(g *fakeGroup) {
				g.onStop = func(g *fakeGroup, _ procs.StopPolicy) {
					g.exit(procs.Exit{LocalRank: 1, Stopped: true, At: time.Now()})
				}
				g.says(1, tt.shown)
				g.victim(0)
			})
			b.rdzv.nodes = 2
			r := b.run(t)
			if root, _ := r.RootCause(); root.LocalRank != tt.want || len(r.Failures) != 1+tt.want {
				t.Errorf("root cause %+v of %d", root, len(r.Failures))
			}
		})
	}
}

// A worker of another round may have had the same pid.
func TestSameRound(t *testing.T) {
	f := failure.Failure{Host: "a", Round: 1, PID: 7}
	if there := incoming(outgoing(f, time.Now()), time.Now()); !f.Same(there) {
		t.Errorf("%+v is not %+v", there, f)
	}
	other := f
	other.Round = 2
	if f.Same(other) {
		t.Error("the same in another round")
	}
	b := newHarness(t, WorkerSpec{MaxRestarts: 1}, exits(procs.Exit{LocalRank: 1, Code: 7}),
		exits(procs.Exit{LocalRank: 1, Code: 8}))
	b.run(t)
	if seen := b.rdzv.seen; len(seen) != 3 || seen[1].Failure.Round != 0 || seen[2].Failure.Round != 1 {
		t.Errorf("sent to others: %+v", seen)
	}
}

// The OOM killer kills a process that a worker has started.
func TestKernelIsAskedForChildren(t *testing.T) {
	b := newHarness(t, WorkerSpec{}, func(g *fakeGroup) {
		g.says(1, "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.")
		g.exit(procs.Exit{LocalRank: 1, Code: 1})
	})
	b.agent.opts.Kernel = &fakeKernel{memory: []evidence.Memory{{Path: "/cg"}, {Path: "/cg", Kills: 1}}}
	r := b.run(t)
	if f := r.Failures[1]; f.Kind != failure.OOMKilled || !strings.Contains(f.Summary, "probably") {
		t.Errorf("%+v", f)
	}
}
