package agent

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/report"
)

const gaveUp = "RuntimeError: [./gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 6000ms for recv operation to complete"

// giveUp ends one worker that has waited for a peer in vain.
func (g *fakeGroup) giveUp(rank int) {
	g.says(rank, gaveUp)
	g.exit(procs.Exit{LocalRank: rank, Code: 1, At: time.Now()})
}

// TestAbsence checks a job on one node. The worker that the others lost or waited for is named even if it shows no
// fault, unless another worker shows one.
func TestAbsence(t *testing.T) {
	const ms = time.Millisecond
	left := func(g *fakeGroup, rank int) { g.exit(procs.Exit{LocalRank: rank, At: time.Now()}) }
	for _, tt := range []struct {
		name    string
		states  map[int]byte // of pids 100 and up
		do      func(g *fakeGroup)
		atOnce  bool // do ends before the agent sees any of it
		root    int
		kind    failure.Kind
		victims int // other failures
		noted   bool
	}{
		{
			name: "one left early", do: func(g *fakeGroup) { left(g, 2); g.victim(0); g.victim(1); g.victim(3) }, root: 2,
			kind: failure.LeftEarly, victims: 3,
		},
		{
			name: "one left early, after an exception",
			do:   func(g *fakeGroup) { g.says(2, "ValueError: boom"); left(g, 2); g.victim(0) }, root: 2,
			kind: failure.LeftEarly, victims: 1,
		},
		{
			name: "one left early, and another failed",
			do: func(g *fakeGroup) {
				left(g, 2)
				g.victim(0)
				g.says(3, "ValueError: boom")
				g.exit(procs.Exit{LocalRank: 3, Code: 1, At: time.Now()})
			},
			atOnce: true, root: 3, kind: failure.Exception, victims: 1,
		},
		{name: "one left, and no peer lost it", do: func(g *fakeGroup) {
			left(g, 2)
			g.exit(procs.Exit{LocalRank: 3, Code: 3, At: time.Now()})
		}, root: 3, kind: failure.Exited},
		{
			name: "one is silent", do: func(g *fakeGroup) { g.giveUp(0); g.giveUp(1); g.giveUp(3) },
			root: 2, kind: failure.Absent, victims: 3,
		},
		{
			name: "one is silent, the others lose those who gave up",
			do:   func(g *fakeGroup) { g.giveUp(1); <-time.After(ms); g.victim(0); g.victim(3) }, root: 2, kind: failure.Absent,
			victims: 3,
		},
		{
			name: "one is silent, and those who gave up are read late",
			do:   func(g *fakeGroup) { g.victim(0); <-time.After(ms); g.giveUp(1); g.victim(3) }, root: 2, kind: failure.Absent,
			victims: 3,
		},
		{
			name: "one is silent, where connections are lost", do: func(g *fakeGroup) { g.victim(0); g.victim(1); g.victim(3) },
			root: 0, kind: failure.PeerLost, victims: 2, noted: true,
		},
		{name: "most are silent", do: func(g *fakeGroup) { g.giveUp(1) }, root: 1, kind: failure.PeerLost, noted: true},
		{
			name: "all gave up", do: func(g *fakeGroup) { g.giveUp(1); <-time.After(ms); g.giveUp(0); g.giveUp(2); g.giveUp(3) },
			root: 1, kind: failure.PeerLost, victims: 3, noted: true,
		},
		{
			name: "one is paused", states: map[int]byte{103: 'T'}, do: func(g *fakeGroup) { g.giveUp(0) }, root: 3,
			kind: failure.Paused, victims: 1,
		},
		{
			name: "one is paused, where connections are lost", states: map[int]byte{103: 'T'},
			do: func(g *fakeGroup) { g.victim(0) }, root: 3, kind: failure.Paused, victims: 1,
		},
		{
			name: "one is silent, and another shows an error",
			do:   func(g *fakeGroup) { g.says(3, "ValueError: boom"); g.giveUp(0); g.giveUp(1) }, atOnce: true,
			root: 3, kind: failure.Suspected, victims: 2,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, later := runsOn, tt.do
				if tt.atOnce {
					start, later = later, start
				}
				b := newHarness(t, WorkerSpec{LocalWorldSize: 4}, start)
				b.agent.opts.Kernel = &fakeKernel{states: tt.states}
				wait := b.start(t.Context())
				later(b.group())
				r, err := wait()
				root, _ := r.RootCause()
				if err != nil || root.LocalRank != tt.root || root.Kind != tt.kind || len(r.Failures) != 1+tt.victims ||
					(r.Note() != "") != tt.noted {
					t.Errorf("%v, root cause %+v of %d failures, note %q", err, root, len(r.Failures), r.Note())
				}
				if past := b.agent.history.rounds[0].Failure; past == nil || past.LocalRank != tt.root {
					t.Errorf("the round's failure is %+v", past)
				}
			})
		})
	}
}

// If a failure on another node has ended the round, a node reports workers that may have been absent. It reports none
// if no worker has failed.
func TestAbsenceElsewhere(t *testing.T) {
	const failed, waited, came = rdzv.WhyFailed + " on node7", rdzv.WhyWaited + " on node7", "node8 came"
	for _, tt := range []struct {
		name  string
		state byte
		left  []int // local ranks that exit with 0
		ago   time.Duration
		why   string
		want  failure.Kind // empty: it reports nothing
	}{
		{name: "all left early", left: []int{0, 1}, why: failed, want: failure.LeftEarly},
		{name: "one left early", left: []int{1}, why: failed, want: failure.LeftEarly},
		{name: "all left long ago", left: []int{0, 1}, ago: time.Minute, why: failed},
		{
			name: "all left long ago, and somebody waited", left: []int{0, 1}, ago: time.Minute, why: waited,
			want: failure.Absent,
		},
		{name: "a node came", left: []int{0, 1}, why: came},
		{name: "all are alive", why: failed},
		{name: "all are alive, and somebody waited", why: waited, want: failure.Absent},
		{name: "all are paused", state: 'T', why: failed, want: failure.Paused},
		{name: "all are paused, and a node came", state: 'T', why: came},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newHarness(t, WorkerSpec{}, runsOn)
				b.rdzv.nodes = 2
				b.rdzv.endAt(1, rdzv.Outcome{Ending: rdzv.EndFailed, Cause: remote()})
				b.agent.opts.Kernel = &fakeKernel{states: map[int]byte{100: tt.state, 101: tt.state}}
				b.rdzv.succeed = func(int) (*rdzv.Stop, error) { return &rdzv.Stop{Why: tt.why}, nil }
				wait := b.start(t.Context())
				for _, rank := range tt.left {
					b.group().exit(procs.Exit{LocalRank: rank, At: time.Now().Add(-tt.ago)})
				}
				if len(tt.left) < 2 {
					b.rdzv.stops <- rdzv.Stop{Why: tt.why}
				}
				r, err := wait()
				if err != nil || len(r.ordered()) != 1 || len(r.Failures) != 0 {
					t.Errorf("%v; absent workers count as failures: %+v", err, r)
				}
				if past := b.agent.history.rounds[0]; past.End != report.EndStopped || past.Failure != nil {
					t.Errorf("the round was kept as %+v", past)
				}
				sent := b.rdzv.seen[1].Failure
				if sent == nil {
					sent = &rdzv.Failure{OnlyStopped: true}
				}
				if sent.Kind != tt.want || !sent.OnlyStopped || sent.Absent != (tt.want == failure.Absent) {
					t.Errorf("sent to others: %+v, want %q", sent, tt.want)
				}
			})
		})
	}
}

// If a worker has waited in vain, other nodes learn of it only after this node's other waiting workers had time to
// report.
func TestDelayBeforeOthersKnow(t *testing.T) {
	for _, tt := range []struct {
		name, says string
		stop       bool // comes after half a second
		want       time.Duration
	}{
		{name: "it waited", says: gaveUp, want: maxStopDelay},
		{name: "it waited, and so did another node's", says: gaveUp, stop: true, want: maxStopDelay / 2},
		{name: "it lost a connection", says: "RuntimeError: Connection closed by peer"},
		{name: "it failed", says: "ValueError: boom"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newHarness(t, WorkerSpec{LocalWorldSize: 1}, runsOn)
				b.rdzv.nodes = 2
				wait := b.start(t.Context())
				if tt.stop {
					time.AfterFunc(maxStopDelay/2, func() { b.rdzv.stops <- rdzv.Stop{Why: rdzv.WhyWaited} })
				}
				begun := time.Now()
				b.group().says(0, tt.says)
				b.group().exit(procs.Exit{LocalRank: 0, Code: 1, At: begun})
				if _, err := wait(); err != nil {
					t.Fatal(err)
				}
				if sent := b.rdzv.sent; len(sent) != 1 || sent[0].Age != tt.want || sent[0].Waited != (tt.says == gaveUp) {
					t.Errorf("sent to others: %+v, want it after %v", sent, tt.want)
				}
			})
		})
	}
}

// If the rendezvous is lost, workers that have only lost their peers are victims of the same outage.
func TestLostStoreIsNoWorkersFault(t *testing.T) {
	for _, tt := range []struct {
		name, says string
		want       int // failures
	}{
		{"it lost its peer", "RuntimeError: Connection closed by peer", 0},
		{"it waited for its peer", gaveUp, 0},
		{"it failed", "ValueError: boom", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newHarness(t, WorkerSpec{LocalWorldSize: 1}, runsOn)
				b.rdzv.failAt, b.rdzv.err = 1, fmt.Errorf("%w: no answer", rdzv.ErrConnection)
				wait := b.start(t.Context())
				b.group().says(0, tt.says)
				b.group().exit(procs.Exit{LocalRank: 0, Code: 1, At: time.Now()})
				r, err := wait()
				if !errors.Is(err, rdzv.ErrRendezvous) || len(r.Failures) != tt.want {
					t.Errorf("%v, %d failures", err, len(r.Failures))
				}
				if out := b.agent.Report(r); (out.RootCause != nil) != (tt.want > 0) || out.Rounds[0].Failure == nil {
					t.Errorf("root cause %+v, round %+v", out.RootCause, out.Rounds[0])
				}
			})
		})
	}
}

// The note about lost connections names a refusal of the store, which explains them better.
func TestNoteOfStoreRefusal(t *testing.T) {
	const refusal, flag = "its process is user 7's", "--store-users=7"
	for _, tt := range []struct {
		kind failure.Kind
		note string
	}{
		{failure.PeerLost, "the worker store refused a connection: " + refusal + "; " + flag},
		{failure.Exited, ""},
	} {
		r := RunResult{
			State: Failed, Cause: &failure.Failure{Kind: tt.kind}, StoreRefusal: errors.New(refusal + "; " + flag),
		}
		if r.Note() != tt.note {
			t.Errorf("%s: note %q, want %q", tt.kind, r.Note(), tt.note)
		}
	}
}
