package agent

import (
	"context"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// victim ends one worker that has lost its peer.
func (g *fakeGroup) victim(rank int) {
	g.says(rank, "RuntimeError: Connection closed by peer")
	g.exit(procs.Exit{LocalRank: rank, Code: 1, At: time.Now()})
}

// Worker 0 loses its peer. What happens to the other three workers within a second decides how long they may run, and
// which worker is named.
func TestDeferStop(t *testing.T) {
	const ms = time.Millisecond
	type setup struct {
		*harness
		g       *fakeGroup
		files   *fakeWatcher
		killNow chan struct{}
	}
	after := func(d time.Duration, do func(s setup)) func(setup) {
		return func(s setup) {
			time.AfterFunc(d, func() {
				synctest.Wait()
				do(s)
			})
		}
	}
	says := func(s setup) { s.g.says(1, "ValueError: boom") }
	stops := func(killIn time.Duration) func(setup) {
		return func(s setup) {
			stop := rdzv.Stop{Round: 0, Why: "a worker has failed"}
			if killIn > 0 {
				stop.KillBy = time.Now().Add(killIn)
			}
			s.rdzv.stops <- stop
		}
	}
	for _, tt := range []struct {
		name  string
		nodes int // 0 is 1
		first procs.Exit
		do    []func(s setup)
		want  time.Duration // until the stop; below 0: there is none
		root  int
	}{
		{name: "nothing", want: time.Second},
		{name: "the lost peer shows an error", do: []func(setup){after(500*ms, says)}, want: 500 * ms, root: 1},
		{name: "the lost peer had shown an error before", do: []func(setup){says}, want: 0, root: 1},
		{name: "the lost peer shows an error too late", do: []func(setup){after(1500*ms, says)}, want: time.Second},
		{name: "others are victims, too", do: []func(setup){
			after(300*ms, func(s setup) { s.g.victim(2) }),
			after(600*ms, says),
		}, want: 600 * ms, root: 1},
		{name: "another ends by itself", do: []func(setup){after(200*ms,
			func(s setup) { s.g.exit(procs.Exit{LocalRank: 2, Code: 3, At: time.Now()}) })}, want: 200 * ms, root: 2},
		{name: "another succeeds", do: []func(setup){after(200*ms,
			func(s setup) { s.g.exit(procs.Exit{LocalRank: 2, At: time.Now()}) })}, want: time.Second, root: 2},
		{name: "all are victims", do: []func(setup){after(400*ms, func(s setup) {
			for rank := 1; rank < 4; rank++ {
				s.g.victim(rank)
			}
		})}, want: 400 * ms},
		{
			name: "an error file is written", do: []func(setup){after(300*ms, func(s setup) { s.files.write(t, 3, boom) })},
			want: 300 * ms, root: 3,
		},
		{name: "the first has a fault of its own", first: procs.Exit{LocalRank: 3, Code: 3}, want: 0, root: 3},
		{name: "there are other nodes", nodes: 2, want: 0},
		{name: "the rendezvous stops the round and leaves time", do: []func(setup){
			after(100*ms, stops(0)),
			after(200*ms, stops(30*time.Second)),
		}, want: time.Second},
		{name: "the rendezvous stops the round and leaves no time", do: []func(setup){after(100*ms, stops(5*time.Second))}, want: 100 * ms},
		{name: "the user presses Ctrl-C again", do: []func(setup){after(100*ms, func(s setup) { close(s.killNow) })}, want: 100 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := setup{files: &fakeWatcher{}, killNow: make(chan struct{})}
				s.harness = newHarness(t, WorkerSpec{LocalWorldSize: 4}, runsOn)
				s.agent.opts.ErrorExitTimeout, s.agent.opts.ErrorFiles, s.agent.opts.KillNow = time.Minute, s.files, s.killNow
				s.rdzv.nodes = max(1, tt.nodes)
				wait := s.start(t.Context())
				s.g = s.group()
				begun, took := time.Now(), time.Duration(-1)
				s.g.onStop = func(*fakeGroup, procs.StopPolicy) { took = time.Since(begun) }
				for _, do := range tt.do {
					do(s)
				}
				if tt.first.Code != 0 {
					tt.first.At = time.Now()
					s.g.exit(tt.first)
				} else {
					s.g.victim(0)
				}
				r, err := wait()
				root, _ := r.RootCause()
				if err != nil || took != tt.want || root.LocalRank != tt.root {
					t.Errorf("stopped after %v by rank %d, %v, want %v and rank %d", took, root.LocalRank, err, tt.want, tt.root)
				}
				if s.files.open.Load() != 0 {
					t.Errorf("%d watches are left", s.files.open.Load())
				}
				if sent := s.rdzv.sent; len(sent) != 1 || sent[0].Age != 0 {
					t.Errorf("the failure was sent as %+v", sent)
				}
			})
		})
	}
}

// A stop signal ends the delay, and the node leaves before it signals its workers. Other signals are forwarded.
func TestSignalsDuringDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forward := make(chan os.Signal)
		b := newHarness(t, WorkerSpec{}, runsOn)
		b.agent.opts.Forward = forward
		ctx, cancel := context.WithCancelCause(t.Context())
		wait := b.start(ctx)
		begun := time.Now()
		b.group().victim(0)
		forward <- syscall.SIGUSR1
		synctest.Wait()
		cancel(&SignalError{Signal: syscall.SIGINT})
		_, err := wait()
		if err == nil || time.Since(begun) != 0 || len(b.group().signals) != 1 {
			t.Errorf("%v after %v, signals %v", err, time.Since(begun), b.group().signals)
		}
		if got := b.list(); len(got) != 4 || got[2] != "leave" || got[3] != "stop SIGINT" {
			t.Errorf("calls: %v", got)
		}
	})
}
