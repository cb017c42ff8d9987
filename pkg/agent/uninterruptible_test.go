package agent

import (
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
)

// sleepKernel is a kernel in which processes sleep.
type sleepKernel struct {
	hangingKernel

	mu       sync.Mutex
	sleeping map[int]uint64 // switches by pid; only processes in state D
	looks    int
}

func (*sleepKernel) Log() (none evidence.KernelLog) { return none }

func (k *sleepKernel) State(pid int) byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.looks++
	if _, asleep := k.sleeping[pid]; asleep {
		return 'D'
	}
	return 'S'
}

func (k *sleepKernel) Switches(pid int) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sleeping[pid]
}

// set makes the given processes sleep, each in the sleep of that number.
func (k *sleepKernel) set(sleeping map[int]uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sleeping = sleeping
}

func TestSleepWatch(t *testing.T) {
	const pid = 7
	one, two := map[int]uint64{pid: 1}, map[int]uint64{pid: 2}
	for _, tt := range []struct {
		name   string
		states []map[int]uint64 // one a second
		found  bool             // at the last one
	}{
		{name: "awake", states: []map[int]uint64{nil, nil, nil, nil, nil}},
		{name: "asleep for three seconds", states: []map[int]uint64{one, one, one, one}, found: true},
		{name: "asleep for two", states: []map[int]uint64{one, one, one, nil}},
		{name: "awake in between", states: []map[int]uint64{one, one, nil, one, one, one}},
		{name: "running in between", states: []map[int]uint64{one, one, two, two, two}},
		{name: "asleep again", states: []map[int]uint64{one, nil, two, two, two, two}, found: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &sleepKernel{}
				w := &sleepWatch{timeout: 3 * time.Second, kernel: k, since: map[int]sleep{}}
				for i, state := range tt.states {
					k.set(state)
					x := w.look(map[int]int{0: 6, 1: pid})
					if found := x != nil; found != (tt.found && i == len(tt.states)-1) {
						t.Errorf("second %d: %+v", i, x)
					} else if found && (x.LocalRank != 1 || x.PID != pid || x.Success()) {
						t.Errorf("%+v", x)
					}
					<-time.After(time.Second)
				}
			})
		})
	}
}

// A worker that sleeps in the kernel fails the group, and the rendezvous hears that no restart may follow.
func TestUninterruptible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &sleepKernel{}
		b := newHarness(t, WorkerSpec{}, runsOn)
		b.agent.opts.Kernel, b.agent.opts.UninterruptibleTimeout = k, time.Minute
		wait := b.start(t.Context())
		b.group().onStop = func(g *fakeGroup, _ procs.StopPolicy) {
			g.exit(procs.Exit{LocalRank: 1, Signal: syscall.SIGKILL, Stopped: true})
		}
		begun := time.Now()
		k.set(map[int]uint64{101: 5})
		r, err := wait()
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < time.Minute || took > time.Minute+3*time.Second {
			t.Errorf("took %v", took)
		}
		root, _ := r.RootCause()
		if root.Kind != failure.Uninterruptible || root.GlobalRank != 1 || !root.NoRestart || root.ShellCode() != 1 ||
			root.Summary != "was in an uninterruptible sleep in the kernel (state D) for 1m" {
			t.Errorf("%+v", root)
		}
		if slices.ContainsFunc(root.Findings, func(f failure.Finding) bool { return f.Kind == failure.Exited }) {
			t.Errorf("an invented exit is evidence: %+v", root.Findings)
		}
	})
}

// Without a timeout nobody looks.
func TestNoSleepWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &sleepKernel{}
		b := newHarness(t, WorkerSpec{}, runsOn)
		b.agent.opts.Kernel = k
		wait := b.start(t.Context())
		k.set(map[int]uint64{100: 5, 101: 5})
		<-time.After(time.Hour)
		if k.looks != 0 {
			t.Errorf("%d looks", k.looks)
		}
		allSucceed(b.group())
		if r, err := wait(); err != nil || r.State != Succeeded {
			t.Errorf("%v, %v", r.State, err)
		}
	})
}
