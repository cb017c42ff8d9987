package agent

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// stubborn returns the behavior of workers that only SIGKILL ends. It records when SIGKILL came.
func stubborn(took *time.Duration) func(*fakeGroup, procs.StopPolicy) {
	return func(_ *fakeGroup, policy procs.StopPolicy) {
		begun := time.Now()
		select {
		case <-policy.KillNow:
		case <-time.After(policy.Grace):
		}
		*took = time.Since(begun)
	}
}

// SIGKILL comes at the time that the rendezvous has set or after the grace, whichever is first.
func TestStopKillBy(t *testing.T) {
	for _, tt := range []struct {
		name   string
		killBy time.Duration // from now; 0 sets none
		later  time.Duration // when another Stop comes that sets KillBy to 2 s later; 0 for none
		want   time.Duration
	}{
		{"the grace alone", 0, 0, 20 * time.Second},
		{"sooner than the grace", 10 * time.Second, 0, 10 * time.Second},
		{"later than the grace", time.Minute, 0, 20 * time.Second},
		{"it has passed", -time.Second, 0, 0},
		{"the store falls silent meanwhile", 0, 5 * time.Second, 7 * time.Second},
		{"no later Stop gives more time", 3 * time.Second, 2 * time.Second, 3 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newHarness(t, WorkerSpec{}, runsOn, allSucceed)
				wait := b.start(t.Context())
				var took time.Duration
				b.group().onStop = stubborn(&took)
				stop := rdzv.Stop{Round: 0, Why: "why"}
				if tt.killBy != 0 {
					stop.KillBy = time.Now().Add(tt.killBy)
				}
				b.rdzv.stops <- stop
				if tt.later != 0 {
					time.AfterFunc(tt.later, func() {
						b.rdzv.stops <- rdzv.Stop{Round: 0, Why: "silent", KillBy: time.Now().Add(2 * time.Second)}
					})
				}
				if _, err := wait(); err != nil {
					t.Error(err)
				}
				if took != tt.want {
					t.Errorf("SIGKILL after %v, want %v", took, tt.want)
				}
			})
		})
	}
}

// A store that falls silent during a stop limits the stop, whatever its reason.
func TestKillByWhileStopping(t *testing.T) {
	for _, tt := range []struct {
		name  string
		begin func(b *harness, cancel context.CancelCauseFunc)
	}{
		{"after a failure", func(b *harness, _ context.CancelCauseFunc) {
			b.group().exit(procs.Exit{
				LocalRank: 1,
				Code:      1,
			})
		}},
		{"after a signal", func(_ *harness, cancel context.CancelCauseFunc) {
			cancel(&SignalError{Signal: syscall.SIGTERM})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newHarness(t, WorkerSpec{}, runsOn)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				wait := b.start(ctx)
				var took time.Duration
				b.group().onStop = stubborn(&took)
				tt.begin(b, cancel)
				time.AfterFunc(time.Second, func() {
					b.rdzv.stops <- rdzv.Stop{Round: 7, Why: "of another round", KillBy: time.Now()}
					b.rdzv.stops <- rdzv.Stop{Round: 0, Why: "silent", KillBy: time.Now().Add(2 * time.Second)}
				})
				_, _ = wait()
				if took != 3*time.Second {
					t.Errorf("SIGKILL after %v, want 3s", took)
				}
			})
		})
	}
}

// The signal and the grace depend on whether the job may go on. It may not after a stop signal to the launcher.
func TestGraces(t *testing.T) {
	for _, tt := range []struct {
		name              string
		restart, shutdown time.Duration
		signal            time.Duration // when the launcher gets a signal; 0 for never
		noFailure         bool
		want              time.Duration
	}{
		{name: "a failure", restart: 5 * time.Second, shutdown: time.Minute, want: 5 * time.Second},
		{name: "a failure, no grace", shutdown: time.Minute, want: 0},
		{
			name: "a signal", restart: 5 * time.Second, shutdown: time.Minute, signal: time.Second, noFailure: true,
			want: time.Minute,
		},
		{
			name: "a signal after a failure", restart: time.Minute, shutdown: 7 * time.Second, signal: 3 * time.Second,
			want: 10 * time.Second,
		},
		{
			name: "a signal after a failure, which leaves enough time", restart: 5 * time.Second, shutdown: 7 * time.Second,
			signal: 3 * time.Second, want: 5 * time.Second,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newHarness(t, WorkerSpec{MaxRestarts: 1}, runsOn, allSucceed)
				b.agent.opts.RestartGrace, b.agent.opts.ShutdownTimeout = tt.restart, tt.shutdown
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				wait := b.start(ctx)
				var took time.Duration
				b.group().onStop = stubborn(&took)
				if tt.signal != 0 {
					time.AfterFunc(tt.signal, func() { cancel(&SignalError{Signal: syscall.SIGTERM}) })
				}
				if !tt.noFailure {
					b.group().exit(procs.Exit{LocalRank: 1, Code: 1})
				}
				_, _ = wait()
				if took != tt.want {
					t.Errorf("SIGKILL after %v, want %v", took, tt.want)
				}
			})
		})
	}
}

func TestSecondInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, WorkerSpec{}, runsOn)
		killNow := make(chan struct{})
		b.agent.opts.KillNow = killNow
		ctx, cancel := context.WithCancelCause(t.Context())
		wait := b.start(ctx)
		var took time.Duration
		b.group().onStop = stubborn(&took)
		cancel(&SignalError{Signal: syscall.SIGINT})
		time.AfterFunc(4*time.Second, func() { close(killNow) })
		if _, err := wait(); err == nil || took != 4*time.Second {
			t.Errorf("SIGKILL after %v, %v", took, err)
		}
	})
}

// All processes got a signal, and the exit of a worker is seen before the launcher's own copy arrives. With several
// nodes the agent waits for the copy before it joins the next round. A single node waits only if the job ends.
func TestSignalToEverybody(t *testing.T) {
	cause := &SignalError{Signal: syscall.SIGTERM}
	for _, tt := range []struct {
		name   string
		after  time.Duration // the launcher's copy, after the worker's end
		stop   time.Duration // how long the siblings take
		signal bool          // the run ends by the signal; else with a failure
	}{
		{"at once", 0, 0, true},
		{"a moment later", 20 * time.Millisecond, 0, true},
		{"while siblings are being stopped", 300 * time.Millisecond, 500 * time.Millisecond, true},
		{"long after", 2 * time.Second, 3 * time.Second, false},
		{"after the end", 10 * time.Second, 0, false},
	} {
		for nodes := 1; nodes <= 2; nodes++ {
			t.Run(fmt.Sprintf("%s, %d nodes", tt.name, nodes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					b := newHarness(t, WorkerSpec{}, func(g *fakeGroup) {
						g.onStop = func(*fakeGroup, procs.StopPolicy) { <-time.After(tt.stop) }
						g.exit(procs.Exit{LocalRank: 1, Signal: syscall.SIGTERM, At: time.Now()})
						if tt.after == 0 {
							cancel(cause)
						} else {
							time.AfterFunc(tt.after, func() { cancel(cause) })
						}
					})
					b.rdzv.nodes = nodes
					r, err := b.agent.Run(ctx)
					switch {
					case tt.signal && (!errors.Is(err, cause) || len(r.Failures) != 0):
						t.Errorf("result %+v, %v, want the signal", r, err)
					case !tt.signal && (err != nil || !r.IsFailed()):
						t.Errorf("result %+v, %v, want a failure", r, err)
					case tt.signal && nodes > 1 && len(b.rdzv.seen) != 1:
						t.Error("asked for another round")
					}
				})
			})
		}
	}
}

// A node that leaves reports that before it signals its workers, whatever the reason.
func TestLeaveComesFirst(t *testing.T) {
	stuck := &procs.StuckError{Processes: []string{"pid 42 (python3), state D"}}
	t.Run("signaled, and a worker ends because of the signal", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		b := newHarness(t, WorkerSpec{}, func(g *fakeGroup) {
			g.exit(procs.Exit{LocalRank: 0, Signal: syscall.SIGTERM})
			cancel(&SignalError{Signal: syscall.SIGTERM})
		})
		if _, err := b.agent.Run(ctx); err == nil {
			t.Error("no error")
		}
		b.wantCalls(t, "rendezvous", "leave", "stop SIGTERM")
	})
	t.Run("signaled after success", func(t *testing.T) {
		b := newHarness(t, WorkerSpec{}, allSucceed)
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := &SignalError{Signal: syscall.SIGTERM}
		b.rdzv.barrier = func(context.Context, time.Duration) (*rdzv.Stop, error) {
			cancel(cause)
			return nil, rdzv.ErrConnection
		}
		if _, err := b.agent.Run(ctx); !errors.Is(err, cause) || b.state() != Stopped {
			t.Errorf("error %v, state %v", err, b.state())
		}
		b.wantCalls(t, "rendezvous", "stop SIGTERM", "succeed", "leave")
	})
	t.Run("a process does not die", func(t *testing.T) {
		drained := 0
		b := newHarness(t, WorkerSpec{MaxRestarts: 3}, func(g *fakeGroup) {
			g.stopErr = stuck
			g.onDrain = func(ctx context.Context) {
				if by, bounded := ctx.Deadline(); bounded && time.Until(by) <= stuckDrainTimeout {
					drained++
				}
			}
			g.exit(procs.Exit{LocalRank: 1, Code: 5})
		})
		r, err := b.agent.Run(t.Context())
		if drained != 1 {
			t.Errorf("the others' output was waited for %d times", drained)
		}
		if root, ok := r.RootCause(); !errors.Is(err, stuck) || !ok || root.ExitCode != 5 || b.state() != Unknown {
			t.Errorf("result %+v, %v", r, err)
		}
		b.wantCalls(t, "rendezvous", "fail 1", "stop SIGTERM", "leave")
	})
}

// Workers of a job that has ended may take the time of a shutdown; those of a job that goes on, the time of a restart.
func TestGraceOfAFinalStop(t *testing.T) {
	for final, want := range map[bool]time.Duration{true: 30 * time.Second, false: 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := newHarness(t, WorkerSpec{}, runsOn)
			wait := b.start(t.Context())
			b.rdzv.endAt(1, rdzv.Outcome{Ending: rdzv.EndClosed})
			b.rdzv.stops <- rdzv.Stop{Why: "the job has ended", Final: final}
			if _, err := wait(); !errors.Is(err, rdzv.ErrClosed) {
				t.Errorf("error %v", err)
			}
			if got := b.group().policies[0].Grace; got != want {
				t.Errorf("final %v: grace %v, want %v", final, got, want)
			}
		})
	}
}
