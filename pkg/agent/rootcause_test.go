package agent

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/report"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// failureOf returns the failure of a worker on node1.
func failureOf(rank int, at int64, x procs.Exit, e workerEvidence) failure.Failure {
	x.PID = 1000 + rank
	f := failure.Failure{
		Host: "node1", LocalRank: rank, GlobalRank: rank, PID: x.PID, ExitCode: x.Code, Signal: x.Signal,
		Final: x.Unexecutable(),
		Time:  time.Unix(at, 0).UTC(), Kind: kindOf(x), Summary: x.String(), Text: failureText(x, x.String(), e),
	}
	if e.errorFile != nil {
		f.Message, f.RawErrorFile = e.errorFile.Message, e.errorFile.Raw
	}
	return f
}

// by returns a failure with one piece of evidence.
func by(rank int, at int64, kind failure.Kind, text string) failure.Failure {
	f := failureOf(rank, at, procs.Exit{Code: 1}, workerEvidence{})
	f.Kind, f.Summary = kind, summary(procs.Exit{Code: 1}, []failure.Finding{{Text: text}})
	f.Findings = []failure.Finding{{Kind: kind, Time: f.Time, Text: text}}
	return f
}

func TestRootCause(t *testing.T) {
	tests := []struct {
		name     string
		failures []failure.Failure
		want     int
	}{
		{"the first", []failure.Failure{by(2, 101, failure.Exited, ""), by(1, 100, failure.Exited, "")}, 1},
		{"lower rank at the same time", []failure.Failure{by(2, 100, failure.Exited, ""), by(1, 100, failure.Exited, "")}, 1},
		{"a crash before an exit", []failure.Failure{by(0, 100, failure.Exited, ""), by(1, 101, failure.Crashed, "")}, 1},
		{"an OOM kill before an exception", []failure.Failure{
			by(0, 100, failure.Exception, ""),
			by(1, 101, failure.OOMKilled, ""),
		}, 1},
		{
			"a silent exit before the exception that followed from it",
			[]failure.Failure{by(0, 101, failure.Exception, ""), by(1, 100, failure.Exited, "")},
			1,
		},
		{
			"a peer's error is no cause",
			[]failure.Failure{by(0, 100, failure.PeerLost, ""), by(1, 101, failure.Exited, "")},
			1,
		},
		{
			"what is only suspected is likelier than a peer's error",
			[]failure.Failure{by(0, 100, failure.PeerLost, ""), by(1, 101, failure.Suspected, "")},
			1,
		},
		{"but no more", []failure.Failure{by(0, 100, failure.Suspected, ""), by(1, 101, failure.Exited, "")}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := RunResult{State: Failed, Failures: map[int]failure.Failure{}}
			for _, f := range tt.failures {
				r.Failures[f.GlobalRank] = f
			}
			if got, ok := r.RootCause(); !ok || got.GlobalRank != tt.want {
				t.Errorf("root cause is rank %d, want %d", got.GlobalRank, tt.want)
			}
		})
	}
	if _, ok := (RunResult{}).RootCause(); ok {
		t.Error("a root cause of nothing")
	}
}

// Worker 0 has logged an exception, mostly at 101 s, and worker 1 loses its peer at 110 s.
func TestRootCauseAmongSurvivors(t *testing.T) {
	const lostAt = 110
	sec := func(s float64) time.Time { return time.UnixMilli(int64(s * 1000)).UTC() }
	worker := func(rank int, s float64, kind failure.Kind) failure.Failure {
		f := by(rank, 0, kind, "")
		f.Time, f.Stopped = sec(s), kind == failure.Suspected
		f.Findings[0].Time = f.Time
		return f
	}
	losing := func(f failure.Failure, text string) failure.Failure {
		f.Findings = append(f.Findings, failure.Finding{Kind: failure.PeerLost, Time: sec(lostAt + 0.1), Text: text})
		return f
	}
	const closed, waited = "Connection closed by peer", "Timed out waiting 60000ms for recv operation to complete"
	undated := worker(2, 109.9, failure.Suspected) // it has the time of its end
	undated.Findings[0].Time = time.Time{}
	exited, stopped := losing(worker(0, 101, failure.Exception), closed), losing(worker(0, 101, failure.Suspected), closed)
	for _, tt := range []struct {
		name   string
		first  failure.Failure
		others []failure.Failure
		loss   string // how worker 1 reports its loss; closed if empty
		want   int
	}{
		{"alone", exited, nil, "", 0},
		{"the peer was stopped", exited, []failure.Failure{worker(2, 109, failure.Suspected)}, "", 2},
		{"the peer wrote an error file", exited, []failure.Failure{worker(2, 109, failure.ErrorFile)}, "", 2},
		{"the peer's GPU failed", exited, []failure.Failure{worker(2, 109, failure.CUDA)}, "", 2},
		{"the peer's NCCL failed", exited, []failure.Failure{worker(2, 109, failure.NCCL)}, "", 2},
		{"the peer ended by itself", exited, []failure.Failure{worker(2, 109, failure.Exception)}, "", 2},
		{"the peer had a fatal error", exited, []failure.Failure{worker(2, 109, failure.Fatal)}, "", 2},
		{"the first was stopped after its loss", stopped, []failure.Failure{worker(2, 109, failure.Suspected)}, "", 2},
		{
			"an error of a bystander", losing(worker(0, 109.9, failure.Suspected), closed),
			[]failure.Failure{worker(2, 110.5, failure.Suspected)},
			"", 0,
		},
		{"the peer's error was read late", exited, []failure.Failure{worker(2, 110.9, failure.Suspected)}, "", 2},
		{"an error long after the loss", exited, []failure.Failure{worker(2, 111.1, failure.Suspected)}, "", 0},
		{"an error before the first", exited, []failure.Failure{worker(2, 100, failure.Suspected)}, "", 0},
		{"an error that follows from the first", exited, []failure.Failure{worker(2, 102.9, failure.Suspected)}, "", 0},
		{"an error at an unknown time", exited, []failure.Failure{undated}, "", 0},
		{"other handled errors", exited, []failure.Failure{
			worker(2, 109, failure.Suspected), worker(3, 105, failure.Suspected),
		}, "", 2},
		{"errors that follow from the peer's", exited, []failure.Failure{
			worker(2, 109, failure.Suspected), worker(3, 109.8, failure.Suspected), worker(4, 110.2, failure.Suspected),
		}, "", 2},
		{"an exit code without an error", exited, []failure.Failure{worker(2, 109, failure.Exited)}, "", 0},
		{"all lost a peer", exited, []failure.Failure{losing(worker(2, 109, failure.Exception), closed)}, "", 0},
		{"the loss was a time-out", stopped, []failure.Failure{worker(2, 109, failure.Suspected)}, waited, 0},
		{"a time-out was read just after the loss", losing(worker(0, 101, failure.Suspected), waited), []failure.Failure{
			worker(2, 109, failure.Suspected),
		}, "", 0},
		{"the first has lost no peer", worker(0, 101, failure.Exception), []failure.Failure{
			worker(2, 109, failure.Suspected),
		}, "", 0},
		{"the first was stopped and has lost no peer", worker(0, 50, failure.Suspected), []failure.Failure{
			worker(2, 109, failure.Suspected),
		}, "", 0},
		{"the first was stopped long after its error", worker(0, 49.9, failure.Suspected), []failure.Failure{
			worker(2, 109, failure.Suspected),
		}, "", 2},
		{"the first failed long after its error", worker(0, 49.9, failure.Exception), []failure.Failure{
			worker(2, 109, failure.Suspected),
		}, "", 0},
		{"a crash", losing(worker(0, 101, failure.Crashed), closed), []failure.Failure{
			worker(2, 109, failure.Suspected),
		}, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			victim := worker(1, lostAt, failure.PeerLost)
			victim.Findings[0].Text = cmp.Or(tt.loss, closed)
			r := RunResult{Failures: map[int]failure.Failure{0: tt.first, 1: victim}}
			for _, f := range tt.others {
				r.Failures[f.GlobalRank] = f
			}
			if got, _ := r.RootCause(); got.GlobalRank != tt.want {
				t.Errorf("root cause is rank %d, want %d", got.GlobalRank, tt.want)
			}
		})
	}
}

// A lost connection yields to a time-out that is read up to a second later.
func TestWaitedFirst(t *testing.T) {
	lost, waited := by(0, 100, failure.PeerLost, ""), by(1, 100, failure.PeerLost, "")
	waited.Waited = true
	for late, want := range map[time.Duration]int{0: 1, failure.ReadDelay: 1, failure.ReadDelay + 1: 0} {
		waited.Time = lost.Time.Add(late)
		r := RunResult{Failures: map[int]failure.Failure{0: lost, 1: waited}}
		if got, _ := r.RootCause(); got.GlobalRank != want {
			t.Errorf("a time-out %v later: root cause is rank %d, want %d", late, got.GlobalRank, want)
		}
	}
}

// Failures of other nodes are sorted among this node's own, each once.
func TestOthersAreOrderedIn(t *testing.T) {
	cause, mine, there := by(9, 100, failure.Exception, "a"), by(1, 103, failure.PeerLost, "b"),
		by(5, 102, failure.PeerLost, "c")
	cause.Text, mine.Text, there.Text = "", "", ""
	sent := mine
	sent.Text = "what others get"
	r := RunResult{
		State: Failed, Failures: map[int]failure.Failure{1: mine}, Cause: &cause,
		Others: []failure.Failure{sent, there, cause},
	}
	all := r.ordered()
	var ranks []int
	for _, f := range all {
		ranks = append(ranks, f.GlobalRank)
		if f.Text != "" {
			t.Error("a node reports its own failure in the form that others get")
		}
	}
	if !slices.Equal(ranks, []int{9, 5, 1}) {
		t.Errorf("order %v", ranks)
	}
}

func TestSummary(t *testing.T) {
	for _, tt := range []struct {
		x    procs.Exit
		text string // of the strongest finding
		want string
	}{
		{x: procs.Exit{Code: 1}, text: "ValueError: boom\nmore", want: "ValueError: boom"},
		{x: procs.Exit{Code: 3}, want: "exited with code 3"},
		{x: procs.Exit{Signal: syscall.SIGSEGV}, want: "killed by signal 11 (SIGSEGV)"},
		{x: procs.Exit{Code: 1}, text: "killed by signal 9 (SIGKILL), x", want: "killed by signal 9 (SIGKILL), x"},
	} {
		if got := summary(tt.x, []failure.Finding{{Text: tt.text}}); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestHappened(t *testing.T) {
	at := func(ms int64) time.Time { return time.UnixMilli(ms) }
	tests := []struct {
		name           string
		stamp, written int64
		want           int64
	}{
		{"the file's modification time has the fraction", 100_000, 100_700, 100_700},
		{"the file was touched later", 100_000, 104_000, 100_000},
		{"the file is older than it says", 100_000, 90_000, 100_000},
	}
	for _, tt := range tests {
		f := errorFile{Timestamp: at(tt.stamp), Written: at(tt.written)}
		if got := f.happened(); !got.Equal(at(tt.want)) {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	if got := (&errorFile{Written: at(5)}).happened(); !got.Equal(at(5)) {
		t.Errorf("no time in the file: %v", got)
	}
}

// fakeKernel is the kernel of one machine.
type fakeKernel struct {
	memory []evidence.Memory // what is read in turn
	log    evidence.KernelLog
	states map[int]byte // by pid; S for all others
	asked  []string
}

func (k *fakeKernel) Memory() evidence.Memory {
	if len(k.memory) == 0 {
		return evidence.Memory{}
	}
	m := k.memory[0]
	k.memory = k.memory[1:]
	return m
}

func (*fakeKernel) Mark() {}

func (*fakeKernel) Switches(int) uint64 { return 0 }

func (k *fakeKernel) State(pid int) byte { return cmp.Or(k.states[pid], 'S') }

func (k *fakeKernel) Log() evidence.KernelLog { return k.log }

func (k *fakeKernel) Core(pid int, sig syscall.Signal, _ time.Time) string {
	k.asked = append(k.asked, procs.SignalName(sig))
	return "core: /cores/1"
}

// The root cause ends after its victims, because it is stopped.
func TestStoppedWorkerIsToBlame(t *testing.T) {
	b := newHarness(t, WorkerSpec{LocalWorldSize: 3}, func(g *fakeGroup) {
		g.says(1, "ValueError: boom")
		g.says(0, "RuntimeError: Connection closed by peer")
		g.exit(procs.Exit{LocalRank: 0, Code: 1})
	})
	r := b.run(t)
	root, _ := r.RootCause()
	if root.LocalRank != 1 || root.Summary != "ValueError: boom" || len(r.Failures) != 2 {
		t.Errorf("root cause %+v of %d failures", root, len(r.Failures))
	}
	if f := b.rdzv.seen[len(b.rdzv.seen)-1].Failure; f == nil || !f.Stopped || f.OnlyStopped || f.LocalRank != 1 ||
		f.Kind != "suspected" {
		t.Errorf("sent to others: %+v", f)
	}
}

// An error after the stop began is a consequence of the stop.
func TestErrorAfterTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, WorkerSpec{}, func(g *fakeGroup) {
			g.onStop = func(g *fakeGroup, _ procs.StopPolicy) {
				<-time.After(time.Second)
				g.says(1, "ValueError: late")
				g.exit(procs.Exit{LocalRank: 1, Code: 1, Stopped: true})
			}
			g.exit(procs.Exit{LocalRank: 0, Code: 1})
		})
		if r := b.run(t); len(r.Failures) != 1 {
			t.Errorf("%d failures", len(r.Failures))
		}
	})
}

func TestKernelIsAsked(t *testing.T) {
	b := newHarness(t, WorkerSpec{LocalWorldSize: 3}, func(g *fakeGroup) {
		g.exit(procs.Exit{LocalRank: 0, Signal: syscall.SIGKILL})
		g.exit(procs.Exit{LocalRank: 1, Signal: syscall.SIGSEGV, CoreDumped: true})
	})
	kernel := &fakeKernel{
		memory: []evidence.Memory{{Path: "/cg"}, {Path: "/cg", Kills: 1}},
		log: evidence.KernelLog{Readable: true, Kills: []evidence.OOMKill{{
			PID: 100, Name: "python3", RSS: 5 << 20,
			Cgroup: true,
		}}},
	}
	b.agent.opts.Kernel = kernel
	r := b.run(t)
	if got := r.Failures[0].Kind; got != failure.OOMKilled {
		t.Errorf("the first is %s", got)
	}
	if got := r.Failures[1].Summary; got != "killed by signal 11 (SIGSEGV), core: /cores/1" {
		t.Errorf("the second was %s", got)
	}
	if len(r.Failures) != 2 || len(kernel.memory) != 0 {
		t.Errorf("failures %v; %d looks at the memory are left", r.Failures, len(kernel.memory))
	}
}

// SIGKILL that the OOM killer has certainly not sent.
func TestNotTheOOMKiller(t *testing.T) {
	b := newHarness(t, WorkerSpec{}, exits(procs.Exit{LocalRank: 0, Signal: syscall.SIGKILL}))
	calm := evidence.Memory{Path: "/cg", Whole: true}
	b.agent.opts.Kernel = &fakeKernel{memory: []evidence.Memory{calm, calm}}
	if got := b.run(t).Failures[0].Summary; got != "killed by signal 9 (SIGKILL), not by the kernel's OOM killer" {
		t.Errorf("summary %q", got)
	}
}

// What a worker logged before a stop without a failure is kept.
func TestStoppedWithoutFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, WorkerSpec{}, func(g *fakeGroup) { g.says(1, "ValueError: logged") })
		b.rdzv.endAt(1, rdzv.Outcome{Ending: rdzv.EndTimeout})
		wait := b.start(t.Context())
		<-time.After(time.Second)
		b.rdzv.stops <- rdzv.Stop{Round: 0, Why: "a node came"}
		r, err := wait()
		if !errors.Is(err, rdzv.ErrTimeout) || len(r.Failures) != 0 {
			t.Errorf("%v, failures %+v", err, r.Failures)
		}
		if past := b.agent.history.rounds[0]; past.End != report.EndStopped || past.Why != "a node came" ||
			past.Failure == nil {
			t.Errorf("the round was kept as %+v", past)
		}
		if f := b.rdzv.seen[1].Failure; f == nil || !f.Stopped || !f.OnlyStopped {
			t.Errorf("sent to others: %+v", f)
		}
	})
}

// A stream that is only redirected is examined in its file.
func TestRedirectedStderr(t *testing.T) {
	spec := WorkerSpec{Output: workerlog.OutputRules{Redirects: workerlog.StreamSpec{Default: workerlog.AllStreams}}}
	b := newHarness(t, spec, func(g *fakeGroup) {
		text := "Traceback (most recent call last):\n  File \"train.py\", line 1\nValueError: in the file\n"
		if err := os.WriteFile(g.specs[0].Stderr.File, []byte(text), 0o600); err != nil {
			panic(err)
		}
		g.exit(procs.Exit{LocalRank: 0, Code: 1, At: time.Now().Add(time.Second)})
	})
	r := b.run(t)
	if f := r.Failures[0]; f.Kind != failure.Exception || f.Summary != "ValueError: in the file" {
		t.Errorf("%+v", f)
	}
}

// The failures of other nodes arrive as they were sent, except for the text.
func TestOthersTravel(t *testing.T) {
	b := newHarness(t, WorkerSpec{}, exits(procs.Exit{LocalRank: 0, Code: 1}))
	b.rdzv.outcome = &rdzv.Outcome{Ending: rdzv.EndFailed, Cause: remote(), Others: []rdzv.Failure{
		{Failure: failure.Failure{
			Host: "node8", GlobalRank: 70, Kind: "peer_lost", Summary: "RuntimeError: x", LogFile: "/l",
			ErrorFile: "/e", Stopped: true,
		}, Grade: failure.GradePeer},
	}}
	r := b.run(t)
	if len(r.Others) != 1 {
		t.Fatalf("others %+v", r.Others)
	}
	o := r.Others[0]
	if o.Host != "node8" || o.Kind != failure.PeerLost || o.Summary != "RuntimeError: x" || o.LogFile != "/l" ||
		o.ErrorFile != "/e" || !o.Stopped {
		t.Errorf("%+v", o)
	}
}
