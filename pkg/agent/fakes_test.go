package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// fakeLauncher starts fakeGroups. A test scripts each of them.
type fakeLauncher struct {
	*journal
	script []func(g *fakeGroup) // one for each start
	specs  [][]procs.Spec
	groups []*fakeGroup
	err    error
}

func (l *fakeLauncher) Start(specs []procs.Spec, _ <-chan struct{}) (Processes, error) {
	if l.err != nil {
		return nil, l.err
	}
	g := &fakeGroup{
		journal: l.journal, pids: map[int]int{}, exits: make(chan procs.Exit, len(specs)),
		tails: map[int][]string{}, specs: specs,
	}
	for _, s := range specs {
		g.pids[s.LocalRank] = 100*(len(l.groups)+1) + s.LocalRank
	}
	l.specs = append(l.specs, specs)
	l.groups = append(l.groups, g)
	l.script[len(l.groups)-1](g)
	return g, nil
}

// fakeGroup is a group of workers that end when the test ends them or when they are stopped.
type fakeGroup struct {
	*journal
	specs    []procs.Spec
	pids     map[int]int
	exits    chan procs.Exit
	mu       sync.Mutex // guards tails, ended and deaf
	tails    map[int][]string
	ended    []int
	deaf     map[int]bool // workers that do not handle signals yet
	policies []procs.StopPolicy
	signals  []syscall.Signal
	onStop   func(g *fakeGroup, policy procs.StopPolicy)
	onTail   func()
	onDrain  func(ctx context.Context) // what WaitOutput and Drain wait for; nil: all output is where it belongs
	stopErr  error
	// member implements Member; nil: no process belongs to the group
	member func(pid int, before time.Time) (procs.Member, error)
}

func (g *fakeGroup) Exits() <-chan procs.Exit  { return g.exits }
func (g *fakeGroup) PIDs() map[int]int         { return g.pids }
func (g *fakeGroup) Signal(sig syscall.Signal) { g.signals = append(g.signals, sig) }

// SignalHandlers records the signal for the workers that a test has not called deaf.
func (g *fakeGroup) SignalHandlers(sig syscall.Signal, signaled map[int]bool) (all bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	all = true
	for _, rank := range slices.Sorted(maps.Keys(g.pids)) {
		switch {
		case signaled[rank] || slices.Contains(g.ended, rank):
		case g.deaf[rank]:
			all = false
		default:
			signaled[rank] = true
			g.note("%s for %d", procs.SignalName(sig), rank)
		}
	}
	return all
}

func (g *fakeGroup) HaveExited() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.ended) == len(g.pids)
}

func (g *fakeGroup) Member(pid int, before time.Time) (procs.Member, error) {
	if g.member == nil {
		return procs.Member{}, procs.ErrNotMember
	}
	return g.member(pid, before)
}

func (g *fakeGroup) Tail(rank int) []string {
	if g.onTail != nil {
		g.onTail()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tails[rank]
}

func (g *fakeGroup) LastLine(rank int) string {
	if tail := trimBlank(g.Tail(rank)); len(tail) > 0 {
		return tail[len(tail)-1]
	}
	return ""
}

func (g *fakeGroup) ProcessTree() map[int]bool {
	all := map[int]bool{}
	for _, pid := range g.pids {
		all[pid] = true
	}
	return all
}

func (g *fakeGroup) WaitOutput(ctx context.Context) bool {
	if g.onDrain != nil {
		g.onDrain(ctx)
	}
	return ctx.Err() == nil
}

func (g *fakeGroup) Drain(ctx context.Context) error {
	if g.onDrain != nil {
		g.onDrain(ctx)
	}
	return nil
}

// says makes one worker write a traceback with that exception to its stderr.
func (g *fakeGroup) says(rank int, exception string) {
	text := "Traceback (most recent call last):\n  File \"train.py\", line 1\n" + exception + "\n"
	g.mu.Lock()
	g.tails[rank] = strings.Split(strings.TrimSpace(text), "\n")
	g.mu.Unlock()
	g.specs[rank].Stderr.Scan.Scan([]byte(text), time.Now())
}

// exit ends one worker.
func (g *fakeGroup) exit(e procs.Exit) {
	e.PID = g.pids[e.LocalRank]
	g.mu.Lock()
	g.ended = append(g.ended, e.LocalRank)
	g.mu.Unlock()
	g.exits <- e
}

func (g *fakeGroup) Stop(policy procs.StopPolicy) error {
	g.note("stop %s", procs.SignalName(policy.Signal))
	g.policies = append(g.policies, policy)
	if g.onStop != nil {
		g.onStop(g, policy)
	}
	for rank := range g.pids {
		if !slices.Contains(g.ended, rank) {
			g.exit(procs.Exit{LocalRank: rank, Signal: policy.Signal, Stopped: true})
		}
	}
	return g.stopErr
}

// allSucceed is a script in which every worker exits with 0.
func allSucceed(g *fakeGroup) {
	for rank := range g.pids {
		g.exit(procs.Exit{LocalRank: rank})
	}
}

// exits is a script in which one worker ends and the others run on.
func exits(e procs.Exit) func(*fakeGroup) {
	return func(g *fakeGroup) { g.exit(e) }
}

func runsOn(*fakeGroup) {}

// folders makes attempts in a temporary folder and records their names.
type folders struct {
	t     *testing.T
	dir   *workerlog.LogDir
	names []string

	err      error // of every attempt
	optional bool
}

func newFolders(t *testing.T) *folders {
	t.Helper()
	dir, err := workerlog.OpenLogDir(t.TempDir(), "run")
	if err != nil {
		t.Fatal(err)
	}
	return &folders{t: t, dir: dir}
}

func (f *folders) Optional() bool { return f.optional }

func (f *folders) Attempt(restarts, round int, membership bool) (*workerlog.Attempt, error) {
	if f.err != nil {
		return nil, f.err
	}
	f.names = append(f.names, fmt.Sprintf("%d/%d/%v", restarts, round, membership))
	return f.dir.Attempt(restarts, round, membership)
}

// harness is an agent with fakes.
type harness struct {
	*journal
	agent    *Agent
	rdzv     *fakeRendezvous
	launcher *fakeLauncher
	folders  *folders
	events   recorder
	metrics  events.Metrics
}

func newHarness(t *testing.T, spec WorkerSpec, script ...func(*fakeGroup)) *harness {
	t.Helper()
	j := &journal{}
	b := &harness{
		journal: j, rdzv: newFakeRendezvous(j, spec.MaxRestarts), launcher: &fakeLauncher{journal: j, script: script},
		folders: newFolders(t),
	}
	if spec.LocalWorldSize == 0 {
		spec.LocalWorldSize = 2
	}
	spec.Entrypoint, spec.Args = "/usr/bin/python3", []string{"-u", "train.py", "--rank=$local_rank"}
	var err error
	b.agent, err = New(Options{
		Spec: spec, Rendezvous: b.rdzv, Launcher: b.launcher, LogFolders: b.folders, Env: []string{"HOME=/h"},
		Events: events.Sinks{&b.events, &b.metrics}, ShutdownTimeout: 30 * time.Second, RestartGrace: 20 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// recorder keeps the events of an agent.
type recorder struct {
	mu  sync.Mutex
	all []events.Event
}

func (r *recorder) Emit(e events.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, e)
}

func (r *recorder) list() []events.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// states lists the states and sources of torch's events.
func (b *harness) states() (out []string) {
	for _, e := range b.events.list() {
		var line bytes.Buffer
		events.NewTorchLines(&line).Emit(e)
		if line.Len() == 0 {
			continue
		}
		var view struct {
			Metadata struct {
				State    string
				WorkerID *string `json:"worker_id"`
			}
		}
		if err := json.Unmarshal(line.Bytes(), &view); err != nil {
			return []string{err.Error()}
		}
		who := "agent"
		if id := view.Metadata.WorkerID; id != nil {
			who = "worker " + *id
		}
		out = append(out, view.Metadata.State+" "+who)
	}
	return out
}

// logged lists the events of the event log in brief.
func (b *harness) logged() (out []string) {
	for _, e := range b.events.list() {
		if e.Kind.Logged() {
			out = append(out, inBrief(e))
		}
	}
	return out
}

func (b *harness) run(t *testing.T) RunResult {
	t.Helper()
	r, err := b.agent.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// start runs the agent in the background and returns when the agent is idle. The function it returns waits for the
// result. Call start in a bubble of synctest.
func (b *harness) start(ctx context.Context) (wait func() (RunResult, error)) {
	var r RunResult
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, err = b.agent.Run(ctx)
	}()
	synctest.Wait()
	return func() (RunResult, error) {
		<-done
		return r, err
	}
}

// wantCalls checks what the agent called on its fakes.
func (b *harness) wantCalls(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, b.list()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// wantMetric checks the last value of a metric.
func (b *harness) wantMetric(t *testing.T, name string, want float64) {
	t.Helper()
	if got := b.metrics.Get(name); got.Count == 0 || got.Last != want {
		t.Errorf("metric %s = %+v, want %v", name, got, want)
	}
}

// group is the set of workers that was started last.
func (b *harness) group() *fakeGroup { return b.launcher.groups[len(b.launcher.groups)-1] }

func (b *harness) state() WorkerState { return b.agent.state }
