package liveness

import (
	"bytes"
	"context"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/stacks"
)

// fakeSampler samples a node whose only worker is always in the same line. It counts its calls.
type fakeSampler struct {
	worker        observation
	times         []time.Time // of observe
	asked, listed int
	each          func(s *fakeSampler) // before each observation
}

func (s *fakeSampler) observe(context.Context) []observation {
	s.times = append(s.times, time.Now())
	if s.each != nil {
		s.each(s)
	}
	return []observation{s.worker}
}

func (s *fakeSampler) trees(context.Context) [][]process {
	s.listed++
	return [][]process{nil}
}

func (s *fakeSampler) stacks(context.Context, []stackWish) []stackRead {
	s.asked++
	return []stackRead{{known: true, pid: 7, threads: at("/srv/train.py", 1)}}
}

func (s *fakeSampler) python(int, int) {}

// watch runs a Watcher over s for that long, and returns what it reported, with times.
func watch(t *testing.T, opts Options, s *fakeSampler, worker Worker, d time.Duration) (reports []string) {
	t.Helper()
	s.worker.known, s.worker.pid = true, 7
	w := New(opts)
	w.newSampler = func([]Worker) sampler { return s }
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	begun := time.Now()
	worker.PID = 7
	w.Run(ctx, []Worker{worker}, func(q *Quiet) {
		text := time.Since(begun).String() + ": moves"
		if q != nil {
			text = time.Since(begun).String() + ": quiet for " + q.For.String()
		}
		reports = append(reports, text)
	})
	return reports
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeSampler{}
		s.each = func(s *fakeSampler) {
			if n := len(s.times); n <= 4 || n == 14 {
				s.worker.output++
				s.worker.main.switches++
			}
		}
		begun := time.Now()
		reports := watch(t, Options{Timeout: 8 * time.Second}, s, Worker{}, 14500*time.Millisecond)
		if diff := cmp.Diff([]string{"12s: quiet for 8s", "14s: moves"}, reports); diff != "" {
			t.Error(diff)
		}
		if s.times[0].Sub(begun) != time.Second || len(s.times) != 14 {
			t.Errorf("%d samples, the first after %v", len(s.times), s.times[0].Sub(begun))
		}
		// The first time to see whether Python has begun, and once after the main thread has run. The processes are
		// listed from a quarter of the timeout on.
		if s.asked != 2 || s.listed != 8 {
			t.Errorf("stacks were read %d times, processes listed %d times", s.asked, s.listed)
		}
	})
}

func TestRunWhileSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var suspended atomic.Bool
		s := &fakeSampler{each: func(s *fakeSampler) { suspended.Store(len(s.times) >= 4) }}
		opts := Options{Timeout: 8 * time.Second, Suspended: suspended.Load}
		if reports := watch(t, opts, s, Worker{}, time.Hour); len(reports) != 0 || len(s.times) != 4 {
			t.Errorf("%d samples, reports %q", len(s.times), reports)
		}
	})
}

func TestOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeSampler{}
		if reports := watch(t, Options{Off: true}, s, Worker{}, time.Hour); len(reports)+len(s.times) != 0 {
			t.Errorf("%d samples, reports %q", len(s.times), reports)
		}
	})
}

// If /proc belongs to another pid namespace, no process in it is read.
func TestBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeSampler{}
		w := New(Options{Timeout: time.Second, Blind: true})
		w.newSampler = func([]Worker) sampler { return s }
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			w.Run(ctx, []Worker{{LocalRank: 3, PID: os.Getpid()}}, func(q *Quiet) { t.Errorf("reported %+v", q) })
		})
		<-time.After(time.Hour)
		want := map[int]stacks.Life{3: {Activity: stacks.Unknown}}
		if diff := cmp.Diff(want, w.Look(ctx)); diff != "" {
			t.Error(diff)
		}
		if len(s.times) > 0 {
			t.Errorf("%d samples", len(s.times))
		}
		cancel()
		running.Wait()
	})
}

func TestNewest(t *testing.T) {
	show := func(localRank int, quiet time.Duration, sign string) *worker {
		return &worker{localRank: localRank, quiet: quiet, latest: sign}
	}
	ended := show(3, 0, "exit")
	ended.ended = true
	for _, tt := range []struct {
		name    string
		workers []*worker
		rank    int
		sign    string
	}{
		{"no worker", nil, 0, ""},
		{"no sign", []*worker{show(5, 0, ""), ended}, 0, ""},
		{"one", []*worker{show(4, 0, ""), show(5, time.Hour, "output")}, 5, "output"},
		{"the newest", []*worker{show(4, 2, "output"), show(5, 1, "frames"), show(6, 3, "step 7")}, 5, "frames"},
		{"two at once", []*worker{show(4, 2, "output"), show(5, 1, "step 7"), show(6, 1, "frames")}, 5, "step 7"},
		{"one has ended", []*worker{ended, show(6, 1, "frames")}, 6, "frames"},
	} {
		w := New(Options{})
		w.enter(&node{workers: tt.workers}, make([]Worker, len(tt.workers)))
		if rank, sign := w.Newest(); rank != tt.rank || sign != tt.sign {
			t.Errorf("%s: local rank %d, %q, want %d, %q", tt.name, rank, sign, tt.rank, tt.sign)
		}
	}
	if rank, sign := New(Options{}).Newest(); rank != 0 || sign != "" {
		t.Errorf("before Run: local rank %d, %q", rank, sign)
	}
}

// A pattern that matches nothing is named once, after five minutes or when the node is quiet.
func TestStepPatternWithoutMatch(t *testing.T) {
	for name, tt := range map[string]struct {
		timeout, d time.Duration
		found      bool
		want       int
	}{
		"a short run": {time.Hour, 4 * time.Minute, false, 0},
		"a long run":  {time.Hour, 20 * time.Minute, false, 1},
		"a hang":      {time.Minute, 4 * time.Minute, false, 1},
		"a match":     {time.Minute, 20 * time.Minute, true, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			worker := Worker{Step: func() (int64, bool) { return 5, tt.found }}
			watch(t, Options{Timeout: tt.timeout, Logger: zerolog.New(&log)}, &fakeSampler{}, worker, tt.d)
			if got := strings.Count(log.String(), "--step-pattern has found no step"); got != tt.want {
				t.Errorf("%s: %d warnings, want %d: %s", name, got, tt.want, log.String())
			}
		})
	}
}

// A call that the kernel blocks is not begun again, and its late result does not count.
func TestBlockedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c call[int]
		var begun atomic.Int32
		release, first := make(chan struct{}), time.Now()
		blocked := func() int {
			begun.Add(1)
			<-release
			return 1
		}
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			c.start(blocked)
			if _, known := c.wait(ctx); known {
				t.Error("a blocked call has a result")
			}
			cancel()
		}
		if waited := time.Since(first); waited != time.Second { // later samples do not wait for it
			t.Errorf("waited for %v", waited)
		}
		close(release)
		synctest.Wait()
		c.start(func() int { return 2 })
		if got, known := c.wait(t.Context()); got != 2 || !known || begun.Load() != 1 {
			t.Errorf("result %d, %v after %d blocked calls", got, known, begun.Load())
		}
	})
}
