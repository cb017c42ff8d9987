package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// fakeStacks records when it is asked. Reading takes the time that a test sets, or ends with the context.
type fakeStacks struct {
	mu    sync.Mutex
	began time.Time
	shown []string // "SECONDS: title [local ranks]"
	takes time.Duration
	ended []time.Duration // when the calls returned
}

func (s *fakeStacks) Show(ctx context.Context, title string, localRanks []int) string {
	s.mu.Lock()
	s.shown = append(s.shown, fmt.Sprintf("%v: %s %v", time.Since(s.began), title, localRanks))
	s.mu.Unlock()
	where := "in save, train.py:54"
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		where = ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, time.Since(s.began))
	return where
}

// The stacks are read once, shortly before SIGKILL, whatever sets its time. They never delay it.
func TestFinalStacks(t *testing.T) {
	const title = ": workers that still run after SIGTERM, before SIGKILL: []"
	for _, tt := range []struct {
		name   string
		grace  time.Duration
		ends   time.Duration // when the workers end; 0 for never
		killBy time.Duration // of a Stop that comes after 2 s; 0 for none
		urgent time.Duration // when KillNow is closed; 0 for never
		takes  time.Duration
		want   []string
		kill   time.Duration
	}{
		{name: "before the grace is over", grace: 20 * time.Second, want: []string{"19s" + title}, kill: 20 * time.Second},
		{name: "a short grace", grace: 2 * time.Second, want: []string{"1.5s" + title}, kill: 2 * time.Second},
		{name: "no grace", grace: 0, kill: 0},
		{name: "the workers end in time", grace: 20 * time.Second, ends: 18 * time.Second, kill: 18 * time.Second},
		{name: "an urgent stop", grace: 20 * time.Second, urgent: 3 * time.Second, kill: 3 * time.Second},
		{
			name: "a Stop shortens the grace", grace: 20 * time.Second, killBy: 6 * time.Second,
			want: []string{"5s" + title}, kill: 6 * time.Second,
		},
		{name: "a Stop ends the grace", grace: 20 * time.Second, killBy: 2 * time.Second, kill: 2 * time.Second},
		{
			name: "a Stop would prolong the grace", grace: 20 * time.Second, killBy: time.Minute,
			want: []string{"19s" + title}, kill: 20 * time.Second,
		},
		{
			name: "the kernel does not answer", grace: 20 * time.Second, takes: time.Hour,
			want: []string{"19s" + title}, kill: 20 * time.Second,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newHarness(t, WorkerSpec{}, runsOn, allSucceed)
				stacks, killNow := &fakeStacks{takes: tt.takes}, make(chan struct{})
				b.agent.opts.RestartGrace, b.agent.opts.Stacks, b.agent.opts.KillNow = tt.grace, stacks, killNow
				wait := b.start(t.Context())
				var took time.Duration
				b.group().onStop = func(g *fakeGroup, policy procs.StopPolicy) {
					if tt.ends != 0 {
						policy.Grace = tt.ends
					}
					stubborn(&took)(g, policy)
				}
				stacks.began = time.Now()
				b.rdzv.stops <- rdzv.Stop{Round: 0, Why: "why"}
				if tt.killBy != 0 {
					killBy := time.Now().Add(tt.killBy)
					time.AfterFunc(2*time.Second, func() { b.rdzv.stops <- rdzv.Stop{Round: 0, Why: "silent", KillBy: killBy} })
				}
				if tt.urgent != 0 {
					time.AfterFunc(tt.urgent, func() { close(killNow) })
				}
				if _, err := wait(); err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(tt.want, stacks.shown); diff != "" {
					t.Errorf("shown (-want +got):\n%s", diff)
				}
				late := slices.ContainsFunc(stacks.ended, func(d time.Duration) bool { return d > tt.kill })
				if took != tt.kill || late {
					t.Errorf("SIGKILL after %v, want %v; the reading ended after %v", took, tt.kill, stacks.ended)
				}
			})
		})
	}
}

// Where the worker is that does not end is read before it is stopped, and reported with its failure.
func TestStuckWorkerShown(t *testing.T) {
	for _, tt := range []struct {
		name  string
		takes time.Duration
		want  string
	}{
		{"in time", 0, "did not end within 1m: it was in save, train.py:54"},
		{"not in time", time.Hour, "did not end within 1m"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w fakeWatcher
				b := newHangHarness(t, &w, runsOn)
				stacks := &fakeStacks{takes: tt.takes}
				b.agent.opts.Stacks = stacks
				wait := b.start(t.Context())
				b.group().onStop = func(g *fakeGroup, _ procs.StopPolicy) {
					g.exit(procs.Exit{LocalRank: 1, Signal: syscall.SIGKILL, Stopped: true})
				}
				w.await()
				stacks.began = time.Now()
				w.write(t, 1, boom)
				r, err := wait()
				root, _ := r.RootCause()
				found := slices.ContainsFunc(root.Findings, func(f failure.Finding) bool {
					return f.Kind == failure.Stuck && strings.HasSuffix(f.Text, tt.want)
				})
				if err != nil || !found {
					t.Errorf("findings %+v, %v", root.Findings, err)
				}
				want := []string{"1m0s: a worker has written its error file and does not end: [1]"}
				if diff := cmp.Diff(want, stacks.shown); diff != "" || stacks.ended[0] > time.Minute+hungStackTimeout {
					t.Errorf("shown (-want +got), ended after %v:\n%s", stacks.ended, diff)
				}
			})
		})
	}
}

func (s *fakeStacks) ShowProgress(_ context.Context, elsewhere bool) {
	where := "here"
	if elsewhere {
		where = "elsewhere"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = append(s.shown, fmt.Sprintf("%v: %s", time.Since(s.began), where))
}
