package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// messages returns the levels and messages of log lines that contain text.
func messages(log *bytes.Buffer, text string) (out []string) {
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, text) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// A node whose workers have all exited with 0 waits for the others for a limited time. Only the job's own result keeps
// it from success.
func TestExitBarrier(t *testing.T) {
	untilOver := func(_ context.Context, limit time.Duration) (*rdzv.Stop, error) {
		<-time.After(limit)
		return nil, fmt.Errorf("wait: %w", rdzv.ErrTimeout)
	}
	for _, tt := range []struct {
		name    string
		timeout time.Duration
		barrier func(ctx context.Context, limit time.Duration) (*rdzv.Stop, error)
		waits   time.Duration
		logs    []string
		unknown bool // how the others end
		err     error
	}{
		{
			name: "the others finish", timeout: 0,
			barrier: func(context.Context, time.Duration) (*rdzv.Stop, error) {
				<-time.After(3 * time.Second)
				return nil, nil
			},
			waits: 3 * time.Second,
			logs: []string{
				"INF all workers have exited with 0: waiting up to 5m for the other nodes to finish",
				"INF the wait at the exit barrier is over waited=3s",
			},
		},
		{
			name: "torch's time-out", timeout: 0, barrier: untilOver, waits: 5 * time.Minute, unknown: true,
			logs: []string{
				"INF all workers have exited with 0: waiting up to 5m for the other nodes to finish",
				"INF leaving the exit barrier: other nodes may still run waited=5m",
			},
		},
		{
			name: "no wait", timeout: -1, barrier: untilOver, waits: 0, unknown: true,
			logs: []string{
				"INF all workers have exited with 0: waiting up to 0s for the other nodes to finish",
				"INF leaving the exit barrier: other nodes may still run waited=0s",
			},
		},
		{
			name: "the rendezvous is lost", timeout: time.Minute, unknown: true,
			barrier: func(context.Context, time.Duration) (*rdzv.Stop, error) { return nil, rdzv.ErrConnection },
			logs: []string{
				"INF all workers have exited with 0: waiting up to 1m for the other nodes to finish",
				"WRN how the other nodes end is not known; this node ends with success, because all of its workers did " +
					`error="rendezvous backend connection" waited=0s`,
			},
		},
		{
			name: "the job was closed", timeout: time.Minute,
			barrier: func(context.Context, time.Duration) (*rdzv.Stop, error) {
				return nil, fmt.Errorf("wait: %w", &rdzv.EndedError{
					Outcome: rdzv.Outcome{Ending: rdzv.EndClosed, ClosedBy: "ann@desk"},
				})
			},
			logs: []string{"INF all workers have exited with 0: waiting up to 1m for the other nodes to finish"},
			err:  rdzv.ErrClosed,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newHarness(t, WorkerSpec{}, allSucceed)
				var log bytes.Buffer
				b.agent.log = zerolog.New(zerolog.ConsoleWriter{
					Out: &log, NoColor: true, PartsExclude: []string{zerolog.TimestampFieldName},
				})
				b.agent.opts.ExitBarrierTimeout = tt.timeout
				b.rdzv.nodes, b.rdzv.barrier = 2, tt.barrier
				began := time.Now()
				r, err := b.agent.Run(t.Context())
				if !errors.Is(err, tt.err) || err == nil && r.State != Succeeded {
					t.Errorf("result %+v, %v; want the error %v", r, err, tt.err)
				}
				if report := b.agent.Report(r); r.OthersUnknown != tt.unknown || report.OthersUnknown != tt.unknown {
					t.Errorf("others unknown: %v, in the report %v", r.OthersUnknown, report.OthersUnknown)
				}
				if r.ClosedBy == "ann@desk" != errors.Is(err, rdzv.ErrClosed) || b.agent.Report(r).ClosedBy != r.ClosedBy {
					t.Errorf("closed by %q", r.ClosedBy)
				}
				if took := time.Since(began); took != tt.waits {
					t.Errorf("it took %v, want %v", took, tt.waits)
				}
				got := append(messages(&log, "exit"), messages(&log, "how the other nodes")...)
				if diff := cmp.Diff(tt.logs, got); diff != "" {
					t.Errorf("log (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A node on which others depend stays for as long as the rendezvous says.
func TestExitBarrierOfANeededNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, WorkerSpec{}, allSucceed)
		b.agent.opts.ExitBarrierTimeout = 10 * time.Second
		answers := []error{&rdzv.NeededError{Why: "hosts", For: 5 * time.Second}, &rdzv.NeededError{Why: "hosts"}}
		b.rdzv.nodes = 2
		b.rdzv.barrier = func(_ context.Context, limit time.Duration) (*rdzv.Stop, error) {
			if len(answers) == 0 {
				if limit != rdzv.NoTimeout {
					t.Errorf("the last wait is limited to %v", limit)
				}
				<-time.After(time.Hour)
				return nil, nil
			}
			<-time.After(limit)
			answer := answers[0]
			answers = answers[1:]
			return nil, answer
		}
		began := time.Now()
		if r, err := b.agent.Run(t.Context()); err != nil || r.State != Succeeded {
			t.Errorf("result %+v, %v", r, err)
		}
		if took := time.Since(began); took != time.Hour+15*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A signal in the exit barrier ends the wait, and the run is not a success.
func TestSignalAtExitBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, WorkerSpec{}, allSucceed)
		b.rdzv.nodes = 2
		b.rdzv.barrier = func(ctx context.Context, _ time.Duration) (*rdzv.Stop, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		ctx, interrupt := context.WithCancelCause(t.Context())
		wait := b.start(ctx)
		cause := &SignalError{Signal: syscall.SIGTERM}
		interrupt(cause)
		if r, err := wait(); !errors.Is(err, cause) || r.State != Stopped {
			t.Errorf("result %+v, %v, want the signal", r, err)
		}
	})
}

// A node whose workers have all succeeded and are to run again ends with success if the others are lost before that.
func TestLostAfterSuccess(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want error
	}{
		{"the store is lost", rdzv.ErrConnection, nil},
		{"the job has timed out", &rdzv.EndedError{Outcome: rdzv.Outcome{Ending: rdzv.EndTimeout}}, rdzv.ErrTimeout},
		{"the node is refused", rdzv.ErrRefused, rdzv.ErrRefused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newHarness(t, WorkerSpec{}, allSucceed)
			b.rdzv.nodes = 2
			b.rdzv.succeed = func(int) (*rdzv.Stop, error) { return &rdzv.Stop{Why: "node7 leaves"}, nil }
			b.rdzv.failAt, b.rdzv.err = 1, fmt.Errorf("join: %w", tt.err)
			r, err := b.agent.Run(t.Context())
			if !errors.Is(err, tt.want) || err == nil && (r.State != Succeeded || b.state() != Succeeded) ||
				r.OthersUnknown != (tt.want == nil) {
				t.Errorf("result %+v, %v; want the error %v", r, err, tt.want)
			}
		})
	}
}

// The log of a round says what torch's does.
func TestRendezvousComplete(t *testing.T) {
	b := newHarness(t, WorkerSpec{}, allSucceed)
	var log bytes.Buffer
	b.agent.log = zerolog.New(&log)
	b.rdzv.nodes, b.rdzv.rank = 3, 2
	b.run(t)
	want := `"role":"default","local_ranks":[0,1],"global_ranks":[4,5],"role_ranks":[4,5],"world_size":6,` +
		`"role_world_size":6,"message":"rendezvous complete"`
	if !strings.Contains(log.String(), want) {
		t.Errorf("the log lacks %s:\n%s", want, &log)
	}
}
