package status

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/stacks"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/procs"
)

// fakeSampler counts how often it is asked.
type fakeSampler struct{ asked int }

func (f *fakeSampler) Sample(pids map[int]int) map[int]procs.Usage {
	f.asked++
	all := map[int]procs.Usage{}
	for rank := range pids {
		all[rank] = procs.Usage{Processes: 2, CPU: 1.2345, RSS: 1 << 20}
	}
	return all
}

// running is a tracker on which two workers run.
func running() *Tracker {
	b := &Tracker{}
	records, _ := life()
	for _, r := range records[:5] {
		b.Emit(r)
	}
	return b
}

// If /proc belongs to another pid namespace, no process in it is read.
func TestStacksOfForeignProc(t *testing.T) {
	o := NewObserver(running(), Sources{
		Signs: func() map[int]stacks.Life { return map[int]stacks.Life{1: {Quiet: 7}} },
	})
	defer o.Close()
	o.procIsOurs = func() bool { return false }
	workers := o.Stacks(t.Context(), true)
	if len(workers) != 2 {
		t.Fatalf("%d workers, want 2", len(workers))
	}
	for _, w := range workers {
		if w.Problem != "/proc belongs to another pid namespace" || w.State != "" || w.PID == 0 {
			t.Errorf("worker %+v", w)
		}
		if (w.Life != nil) != (w.LocalRank == 1) {
			t.Errorf("local rank %d: %+v", w.LocalRank, w.Life)
		}
	}
}

func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sampler, gpuAsked, hang := &fakeSampler{}, 0, false
		l := NewObserver(running(), Sources{
			Usage:     sampler,
			Signs:     func() map[int]stacks.Life { return map[int]stacks.Life{1: {Quiet: 7, Sign: "output"}} },
			LastLines: func() map[int]string { return map[int]string{1: "\x1b[31mloss 0.5\x1b[0m\r"} },
			GPUs: func(ctx context.Context) ([]topology.GPULoad, error) {
				gpuAsked++
				if hang {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return []topology.GPULoad{{Index: 0, Utilization: 70, MemoryUsed: 1, MemoryTotal: -1}}, nil
			},
			Logger: zerolog.Nop(),
		})
		<-time.After(time.Hour)
		if sampler.asked+gpuAsked != 0 {
			t.Error("asked although nobody looked")
		}
		begun := time.Now()
		s := l.Observe(t.Context())
		if took := time.Since(begun); took != firstSpan {
			t.Errorf("the first look took %v", took)
		}
		if diff := cmp.Diff(&Usage{Processes: 2, CPUPercent: new(123.5), RSSBytes: 1 << 20}, s.Workers[1].Usage); diff != "" {
			t.Errorf("usage (-want +got):\n%s", diff)
		}
		if got := s.Workers[1].LastLine; got != "loss 0.5" {
			t.Errorf("last line %q", got)
		}
		if w := s.Workers[1]; w.Quiet == nil || *w.Quiet != 7 || w.Sign != "output" || s.Workers[0].Quiet != nil {
			t.Errorf("signs of %+v", s.Workers)
		}
		if diff := cmp.Diff([]GPU{{UtilizationPercent: new(70), MemoryUsedBytes: new(int64(1))}}, s.GPUs); diff != "" {
			t.Errorf("GPUs (-want +got):\n%s", diff)
		}
		for range 10 {
			l.Observe(t.Context())
		}
		if sampler.asked != 2 || gpuAsked != 1 {
			t.Errorf("asked %d and %d times", sampler.asked, gpuAsked)
		}
		hang = true
		<-time.After(gpuAge)
		begun = time.Now()
		if s = l.Observe(t.Context()); time.Since(begun) != observeTimeout || len(s.GPUs) != 1 {
			t.Errorf("with a driver that hangs: %v, %v", time.Since(begun), s.GPUs)
		}
		l.Close()
		synctest.Wait()
		if s = l.Observe(t.Context()); len(s.Workers) != 2 {
			t.Errorf("after Close: %+v", s)
		}
	})
}

// A measurement that has failed is not tried again.
func TestProbeGivesUp(t *testing.T) {
	asked, failed := 0, 0
	p := probe[int]{
		ask:    func(context.Context) (int, error) { asked++; return 7, errors.New("broken") },
		failed: func(error) { failed++ },
	}
	for range 3 {
		if got := p.get(t.Context(), t.Context()); got != 0 {
			t.Errorf("got %d", got)
		}
	}
	if asked != 1 || failed != 1 {
		t.Errorf("asked %d times, failed %d times", asked, failed)
	}
}
