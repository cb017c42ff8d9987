package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// fakeDevices release what the old group held after a while.
type fakeDevices struct {
	free  time.Duration // how long after the first look; below 0 for never
	each  time.Duration // how long a look takes
	err   error
	first time.Time
	asked [][]int // the pids of the first look at each group
}

func (d *fakeDevices) InUse(ctx context.Context, pids map[int]bool) ([]string, error) {
	all := slices.Sorted(maps.Keys(pids))
	if len(d.asked) == 0 || !slices.Equal(d.asked[len(d.asked)-1], all) {
		d.asked, d.first = append(d.asked, all), time.Now()
	}
	select {
	case <-time.After(d.each):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if d.err != nil || d.free >= 0 && time.Since(d.first) >= d.free {
		return nil, d.err
	}
	return []string{fmt.Sprintf("pid %d (python3)", all[0])}, nil
}

const (
	stillInUse = `"processes":["pid 100 (python3)"]`
	notKnown   = "cannot find out whether the GPUs are free again"
)

// A restart waits until the devices of the previous group are free, but at most half a minute. A first start does not
// wait.
func TestRestartWaitsForDevices(t *testing.T) {
	for _, tt := range []struct {
		name    string
		devices fakeDevices
		want    time.Duration // until each restart
		inUse   int           // warnings that devices are in use
		unknown int           // warnings that this is not known
		asked   int           // groups whose devices were queried
	}{
		{name: "free at once", want: 0, asked: 2},
		{name: "a slow query", devices: fakeDevices{each: 2 * time.Second}, want: 2 * time.Second, asked: 2},
		{name: "a slow driver", devices: fakeDevices{free: 3 * time.Second}, want: 3 * time.Second, asked: 2},
		{name: "never free", devices: fakeDevices{free: -1}, want: 30 * time.Second, inUse: 1, asked: 2},
		{name: "the query fails", devices: fakeDevices{err: errors.New("no answer")}, want: 0, unknown: 1, asked: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var stopped, started []time.Time
				ends := func(g *fakeGroup) {
					started = append(started, time.Now())
					g.onStop = func(*fakeGroup, procs.StopPolicy) { stopped = append(stopped, time.Now()) }
					g.exit(procs.Exit{LocalRank: 1, Code: 1})
				}
				b := newHarness(t, WorkerSpec{MaxRestarts: 2}, ends, ends, func(g *fakeGroup) {
					started = append(started, time.Now())
					allSucceed(g)
				})
				log := new(testenv.Buffer)
				b.agent.log, b.agent.opts.Devices = zerolog.New(log), &tt.devices
				begun := time.Now()
				b.run(t)
				if took := started[0].Sub(begun); took != 0 {
					t.Errorf("the first start took %v", took)
				}
				for i := range stopped {
					if took := started[i+1].Sub(stopped[i]); took != tt.want {
						t.Errorf("restart %d took %v, want %v", i, took, tt.want)
					}
				}
				if diff := cmp.Diff([][]int{{100, 101}, {200, 201}}[:tt.asked], tt.devices.asked); diff != "" {
					t.Errorf("pids asked for (-want +got):\n%s", diff)
				}
				if got := strings.Count(log.String(), stillInUse); got != tt.inUse {
					t.Errorf("logged %d times that they are in use: %s", got, log)
				}
				if got := strings.Count(log.String(), notKnown); got != tt.unknown {
					t.Errorf("logged %d times that it is not known: %s", got, log)
				}
			})
		})
	}
}

// The wait and the rendezvous run at the same time: a restart takes as long as the longer of the two.
func TestDevicesAndRendezvousAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, WorkerSpec{MaxRestarts: 1}, exits(procs.Exit{LocalRank: 1, Code: 1}), allSucceed)
		b.agent.opts.Devices = &fakeDevices{free: 3 * time.Second}
		b.agent.opts.Rendezvous = slowRendezvous{b.rdzv, 4 * time.Second}
		begun := time.Now()
		b.run(t)
		if took := time.Since(begun); took != 8*time.Second {
			t.Errorf("two rounds took %v, want twice the rendezvous", took)
		}
	})
}

type slowRendezvous struct {
	*fakeRendezvous
	takes time.Duration
}

func (r slowRendezvous) NextRendezvous(ctx context.Context, self rdzv.Member) (*rdzv.Round, error) {
	<-time.After(r.takes)
	return r.fakeRendezvous.NextRendezvous(ctx, self)
}

// A round that is over before its workers are started starts none. A launcher that receives a stop signal does not
// wait, nor does one whose job has ended.
func TestWaitForDevicesEnds(t *testing.T) {
	t.Run("the round is over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newHarness(t, WorkerSpec{MaxRestarts: 1}, exits(procs.Exit{LocalRank: 1, Code: 1}), allSucceed)
			b.agent.opts.Devices = &fakeDevices{free: 10 * time.Second}
			begun := time.Now()
			time.AfterFunc(4*time.Second, func() {
				b.rdzv.stops <- rdzv.Stop{Round: 0, Why: "an earlier round"}
				b.rdzv.stops <- rdzv.Stop{Round: 1, Why: "a node joined"}
			})
			if r := b.run(t); r.State != Succeeded || len(b.launcher.groups) != 2 || b.rdzv.calls != 3 {
				t.Errorf("result %+v, %d groups in %d rounds", r, len(b.launcher.groups), b.rdzv.calls)
			}
			if took := time.Since(begun); took != 10*time.Second {
				t.Errorf("took %v", took)
			}
		})
	})
	t.Run("signaled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newHarness(t, WorkerSpec{MaxRestarts: 1}, exits(procs.Exit{LocalRank: 1, Code: 1}))
			b.agent.opts.Devices = &fakeDevices{free: 10 * time.Second}
			ctx, cancel := context.WithCancelCause(t.Context())
			begun, cause := time.Now(), &SignalError{Signal: syscall.SIGTERM}
			time.AfterFunc(4*time.Second, func() { cancel(cause) })
			if _, err := b.agent.Run(ctx); !errors.Is(err, cause) || time.Since(begun) != 4*time.Second {
				t.Errorf("error %v after %v", err, time.Since(begun))
			}
		})
	})
	t.Run("the job has ended", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newHarness(t, WorkerSpec{}, exits(procs.Exit{LocalRank: 1, Code: 1}))
			log := new(testenv.Buffer)
			b.agent.log, b.agent.opts.Devices = zerolog.New(log), &fakeDevices{free: -1}
			begun := time.Now()
			r := b.run(t)
			if !r.IsFailed() || time.Since(begun) > duplicateSignalWait || strings.Contains(log.String(), "GPU") {
				t.Errorf("result %+v after %v: %s", r, time.Since(begun), log)
			}
		})
	})
}
