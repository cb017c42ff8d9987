package agent

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/elasticrun/elasticrun/pkg/procs"
)

// fakeFitness is a machine that fails the check with this number.
type fakeFitness struct {
	*journal
	bad   int
	calls int
	block bool // until ctx ends
}

func (f *fakeFitness) Check(ctx context.Context) error {
	f.note("check")
	f.calls++
	if f.block {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if f.calls == f.bad {
		return errors.New("link 3 is down")
	}
	return nil
}

// A node is checked after each failure of its own except the last, and leaves if it is not fit.
func TestFitness(t *testing.T) {
	fails := exits(procs.Exit{LocalRank: 1, Code: 7})
	for _, tt := range []struct {
		name     string
		restarts int
		forgets  bool
		bad      int
		script   []func(*fakeGroup)
		calls    int
		unfit    bool
	}{
		{name: "no failure", restarts: 2, script: []func(*fakeGroup){allSucceed}},
		{name: "fit", restarts: 2, script: []func(*fakeGroup){fails, fails, allSucceed}, calls: 2},
		{name: "not fit", restarts: 2, bad: 2, script: []func(*fakeGroup){fails, fails, allSucceed}, calls: 2, unfit: true},
		{name: "the last failure", restarts: 1, bad: 2, script: []func(*fakeGroup){fails, fails}, calls: 1},
		{
			name: "the last of the budget, with a restart window", restarts: 1, forgets: true, bad: 2, script: []func(*fakeGroup){fails, fails},
			calls: 2, unfit: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newHarness(t, WorkerSpec{MaxRestarts: tt.restarts}, tt.script...)
				f := &fakeFitness{journal: b.journal, bad: tt.bad}
				b.agent.opts.Fitness, b.agent.opts.RestartWindow = f, tt.forgets
				_, err := b.agent.Run(t.Context())
				if f.calls != tt.calls || errors.As(err, new(*UnfitError)) != tt.unfit {
					t.Errorf("checked %d times, and %v; want %d and unfit: %t", f.calls, err, tt.calls, tt.unfit)
				}
				did := b.list()
				if left := slices.Contains(did, "leave"); left != tt.unfit {
					t.Errorf("left: %t: %v", left, did)
				}
				if tt.unfit && (b.state() != Stopped || did[slices.Index(did, "leave")-1] != "check") {
					t.Errorf("in state %v after %v", b.state(), did)
				}
			})
		})
	}
}

// A stop because of another node is no failure of this node, so it needs no check.
func TestFitnessOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, WorkerSpec{MaxRestarts: 2}, func(*fakeGroup) {}, allSucceed)
		b.rdzv.nodes = 2
		f := &fakeFitness{journal: b.journal, bad: 1}
		b.agent.opts.Fitness = f
		wait := b.start(t.Context())
		b.rdzv.failElsewhere(0)
		if _, err := wait(); err != nil || f.calls > 0 {
			t.Errorf("%v, after %d checks", err, f.calls)
		}
	})
}

// A signal ends the check and decides how the launcher ends.
func TestFitnessInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, WorkerSpec{MaxRestarts: 2}, exits(procs.Exit{LocalRank: 0, Code: 1}))
		b.agent.opts.Fitness = &fakeFitness{journal: b.journal, block: true}
		ctx, cancel := context.WithCancelCause(t.Context())
		wait := b.start(ctx)
		cancel(&SignalError{Signal: syscall.SIGTERM})
		if _, err := wait(); !errors.As(err, new(*SignalError)) || errors.As(err, new(*UnfitError)) {
			t.Errorf("%v, want the signal", err)
		}
	})
}
