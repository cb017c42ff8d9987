package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

func TestPlanSave(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct{ grace, shutdown, left, save, kill time.Duration }{
		{60 * s, 30 * s, 0, 60 * s, 90 * s},             // nobody knows when the node is taken away
		{60 * s, 30 * s, time.Hour, 60 * s, 90 * s},     // late enough
		{60 * s, 30 * s, 60 * s, 46 * s, 58 * s},        // Slurm's --signal=USR1@60
		{60 * s, 30 * s, 30 * s, 22 * s, 28 * s},        // Kubernetes' default
		{60 * s, 30 * s, 95 * s, 60 * s, 90 * s},        // just enough
		{60 * s, 0, 30 * s, 28 * s, 28 * s},             // SIGKILL follows at once
		{0, 30 * s, 0, 0, 30 * s},                       // no time to save
		{60 * s, 30 * s, s, 600 * s / 1000, 8 * s / 10}, // hardly any
	} {
		got := planSave(tt.grace, tt.shutdown, tt.left)
		if got.save != tt.save || got.kill != tt.kill || got.giveUp <= got.kill || tt.left > 0 && got.giveUp >= tt.left {
			t.Errorf("grace %v, shutdown %v, left %v: %v, want %v and %v", tt.grace, tt.shutdown, tt.left, got, tt.save, tt.kill)
		}
	}
}

// preemptHarness returns an agent whose job is preempted as soon as it enters a second round.
func preemptHarness(t *testing.T, script ...func(*fakeGroup)) *harness {
	t.Helper()
	b := newHarness(t, WorkerSpec{}, script...)
	b.agent.opts.WorkerDir = t.TempDir()
	b.rdzv.nodes = 2
	b.rdzv.endAt(1, rdzv.Outcome{Ending: rdzv.EndPreempted, Text: "node7 received SIGUSR1"})
	return b
}

// preemptStop is what an agent gets that is to let its workers save.
func preemptStop() rdzv.Stop {
	return rdzv.Stop{
		Why: "the job is preempted", KillBy: time.Now().Add(time.Hour),
		Preemption: &rdzv.Preemption{Signal: syscall.SIGUSR1, By: "node7 received SIGUSR1", Grace: time.Minute},
	}
}

// wasPreempted checks the end of a run.
func wasPreempted(t *testing.T, r RunResult, err error) {
	t.Helper()
	end, ok := errors.AsType[*rdzv.EndedError](err)
	if !ok || end.Outcome.Ending != rdzv.EndPreempted || !r.Preempted || r.State != Stopped || len(r.Failures) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestPreempt checks that the workers get file and signal, that the exit of one stops no other, and that a failure
// while they save is none of the job.
func TestPreempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := preemptHarness(t, runsOn)
		wait := b.start(t.Context())
		b.rdzv.stops <- preemptStop()
		synctest.Wait()
		var notice preemptNotice
		data, err := os.ReadFile(b.agent.opts.WorkerDir + "/0.preempted")
		if err == nil {
			err = json.Unmarshal(data, &notice)
		}
		in := func(d time.Duration) float64 { return float64(time.Now().Add(d).UnixMilli()) / 1000 }
		want := preemptNotice{"SIGUSR1", "node7 received SIGUSR1", in(60 * time.Second), in(90 * time.Second)}
		if err != nil || notice != want {
			t.Errorf("%+v, %v, want %+v", notice, err, want)
		}
		b.group().exit(procs.Exit{LocalRank: 0, Code: 3})
		<-time.After(50 * time.Second)
		b.group().exit(procs.Exit{LocalRank: 1})
		r, err := wait()
		wasPreempted(t, r, err)
		b.wantCalls(t, "rendezvous", "SIGUSR1 for 0", "SIGUSR1 for 1", "stop SIGTERM", "rendezvous", "leave")
		if seen := b.rdzv.seen[1]; !seen.Preempted || seen.Finished || seen.Failure != nil {
			t.Errorf("%+v", seen)
		}
	})
}

// TestPreemptLateHandlers checks that workers which do not handle the signal yet get it when they do, once.
func TestPreemptLateHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := preemptHarness(t, func(g *fakeGroup) { g.deaf = map[int]bool{1: true} })
		wait := b.start(t.Context())
		b.rdzv.stops <- preemptStop()
		<-time.After(10 * time.Second)
		b.group().mu.Lock()
		b.group().deaf = nil
		b.group().mu.Unlock()
		<-time.After(time.Second)
		for rank := range 2 {
			b.group().exit(procs.Exit{LocalRank: rank})
		}
		r, err := wait()
		wasPreempted(t, r, err)
		b.wantCalls(t, "rendezvous", "SIGUSR1 for 0", "SIGUSR1 for 1", "stop SIGTERM", "rendezvous", "leave")
	})
}

// TestPreemptCanceledStart checks that the agent does not wait for workers that were never started.
func TestPreemptCanceledStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := preemptHarness(t, func(g *fakeGroup) { delete(g.pids, 1) })
		wait := b.start(t.Context())
		began := time.Now()
		b.rdzv.stops <- preemptStop()
		synctest.Wait()
		b.group().exit(procs.Exit{LocalRank: 0})
		r, err := wait()
		wasPreempted(t, r, err)
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestPreemptGrace checks when SIGTERM and SIGKILL come for workers that go on.
func TestPreemptGrace(t *testing.T) {
	for _, tt := range []struct {
		name       string
		left       time.Duration // as the rendezvous says
		deadline   time.Duration // of this node, from now; 0 for none
		killBy     time.Duration // from now
		later      time.Duration // another Stop comes then, which leaves 1 s; 0 for none
		term, kill time.Duration
	}{
		{"the grace and the shutdown timeout", 0, 0, time.Hour, 0, 60 * time.Second, 90 * time.Second},
		{"the other node is taken away before", 60 * time.Second, 0, time.Hour, 0, 46 * time.Second, 58 * time.Second},
		{"this node is", 0, 60 * time.Second, time.Hour, 0, 46 * time.Second, 58 * time.Second},
		{"a deadline that has passed", 0, -time.Second, time.Hour, 0, 60 * time.Second, 90 * time.Second},
		{"they were being stopped already", 0, 0, 20 * time.Second, 0, 20 * time.Second, 20 * time.Second},
		{"the store falls silent", 0, 0, time.Hour, 30 * time.Second, 30 * time.Second, 31 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := preemptHarness(t, runsOn)
				began := time.Now()
				if tt.deadline != 0 {
					b.agent.opts.Deadline = began.Add(tt.deadline)
				}
				wait := b.start(t.Context())
				var term time.Duration
				var took time.Duration
				b.group().onStop = func(g *fakeGroup, policy procs.StopPolicy) {
					term = time.Since(began)
					stubborn(&took)(g, policy)
				}
				stop := preemptStop()
				stop.KillBy, stop.Preemption.Left = began.Add(tt.killBy), tt.left
				b.rdzv.stops <- stop
				if tt.later > 0 {
					<-time.After(tt.later)
					b.rdzv.stops <- rdzv.Stop{Why: "silent", Silence: true, KillBy: time.Now().Add(time.Second)}
				}
				r, err := wait()
				wasPreempted(t, r, err)
				if kill := term + took; term != tt.term || kill != tt.kill {
					t.Errorf("SIGTERM after %v and SIGKILL after %v, want %v and %v", term, kill, tt.term, tt.kill)
				}
			})
		})
	}
}

// TestPreemptFinished checks which workers count as finished.
func TestPreemptFinished(t *testing.T) {
	write := func(b *harness, rank int, text string) {
		path := filepath.Join(b.agent.opts.WorkerDir, fmt.Sprintf("0.%d.control", rank))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
	for _, tt := range []struct {
		name string
		do   func(b *harness) // before the Stop
		save func(b *harness) // after it
		want bool
	}{
		{"none says so", nil, nil, false},
		{"all say so", nil, func(b *harness) { write(b, 0, "finished\n"); write(b, 1, "finished") }, true},
		{"one does", nil, func(b *harness) { write(b, 0, "finished\n") }, false},
		{
			"one had exited with 0 before",
			func(b *harness) { b.group().exit(procs.Exit{LocalRank: 0}) },
			func(b *harness) { write(b, 1, "\n finished \n") },
			true,
		},
		{"garbage", nil, func(b *harness) { write(b, 0, "finished!"); write(b, 1, strings.Repeat("x", 1<<20)) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := preemptHarness(t, runsOn)
				wait := b.start(t.Context())
				if tt.do != nil {
					tt.do(b)
					synctest.Wait()
				}
				b.rdzv.stops <- preemptStop()
				synctest.Wait()
				if tt.save != nil {
					tt.save(b)
				}
				for rank := range 2 {
					if !slices.Contains(b.group().ended, rank) {
						b.group().exit(procs.Exit{LocalRank: rank})
					}
				}
				if _, err := wait(); err == nil {
					t.Error("no error")
				}
				if got := b.rdzv.seen[1].Finished; got != tt.want {
					t.Errorf("finished %v, want %v", got, tt.want)
				}
			})
		})
	}
}

// TestPreemptAtBarrier checks a node whose workers have all exited with 0 before.
func TestPreemptAtBarrier(t *testing.T) {
	b := preemptHarness(t, allSucceed)
	stop := preemptStop()
	b.rdzv.succeed = func(int) (*rdzv.Stop, error) { return &stop, nil }
	r, err := b.agent.Run(t.Context())
	if end, ok := errors.AsType[*rdzv.EndedError](err); !ok || end.Outcome.Ending != rdzv.EndPreempted || !r.Preempted {
		t.Errorf("%+v, %v", r, err)
	}
	if seen := b.rdzv.seen[1]; !seen.Finished || !seen.Preempted {
		t.Errorf("%+v", seen)
	}
}

// TestPreemptRequested checks a node that has got the signal: workers that exit with 0 afterwards have saved, and have
// not succeeded.
func TestPreemptRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := preemptHarness(t, runsOn)
		requests := make(chan rdzv.Preemption, 1)
		b.agent.opts.Preempt, b.agent.opts.PreemptGrace = requests, time.Minute
		wait := b.start(t.Context())
		<-time.After(time.Second)
		requests <- rdzv.Preemption{Signal: syscall.SIGUSR1, By: "this node"}
		synctest.Wait()
		for rank := range 2 {
			b.group().exit(procs.Exit{LocalRank: rank, At: time.Now().Add(time.Second)})
		}
		r, err := wait()
		wasPreempted(t, r, err)
		b.wantCalls(t, "rendezvous", "preempt: this node", "stop SIGTERM", "rendezvous", "leave")
	})
}

// TestPreemptSignaled checks that a stop signal ends the time to save on this node.
func TestPreemptSignaled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := preemptHarness(t, runsOn)
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		wait := b.start(ctx)
		b.rdzv.stops <- preemptStop()
		<-time.After(time.Second)
		cancel(&SignalError{Signal: syscall.SIGTERM})
		r, err := wait()
		if !errors.As(err, new(*SignalError)) || !r.Preempted {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestPreemptUnconfirmed checks that a node does not wait forever for a rendezvous that does not come.
func TestPreemptUnconfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := preemptHarness(t)
		requests := make(chan rdzv.Preemption, 1)
		b.agent.opts.Rendezvous = foreverRendezvous{b.rdzv}
		b.agent.opts.Preempt, b.agent.opts.PreemptGrace = requests, time.Minute
		wait := b.start(t.Context())
		requests <- rdzv.Preemption{Signal: syscall.SIGUSR1, By: "this node"}
		began := time.Now()
		r, err := wait()
		if took := time.Since(began); took != 95*time.Second {
			t.Errorf("it waited %v", took)
		}
		wasPreempted(t, r, err)
	})
}

// foreverRendezvous never forms a round.
type foreverRendezvous struct{ *fakeRendezvous }

func (r foreverRendezvous) NextRendezvous(ctx context.Context, _ rdzv.Member) (*rdzv.Round, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}
