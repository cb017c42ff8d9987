package agent

import (
	"bytes"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
)

// fakeTimers are timers that a test lets expire.
type fakeTimers struct {
	expired chan struct{}
	pending []TimerExpiry
	resets  int
}

func (f *fakeTimers) Expired() <-chan struct{} { return f.expired }
func (f *fakeTimers) Reset()                   { f.resets++ }

func (f *fakeTimers) Take() []TimerExpiry {
	all := f.pending
	f.pending = nil
	return all
}

// expire lets timers expire.
func (f *fakeTimers) expire(all ...TimerExpiry) {
	f.pending = append(f.pending, all...)
	f.expired <- struct{}{}
	synctest.Wait()
}

// newTimerHarness is a harness with timers and a log.
func newTimerHarness(
	t *testing.T, log *bytes.Buffer, spec WorkerSpec, script ...func(*fakeGroup),
) (*harness, *fakeTimers) {
	t.Helper()
	b, timers := newHarness(t, spec, script...), &fakeTimers{expired: make(chan struct{})}
	b.agent.opts.Timers, b.agent.log = timers, zerolog.New(log)
	return b, timers
}

// membersOf makes g find its workers, and a daemon of one with pid 900.
func membersOf(g *fakeGroup) {
	g.member = func(pid int, _ time.Time) (procs.Member, error) {
		m := procs.Member{LocalRank: -1, Signal: func(sig syscall.Signal) {
			g.note("%s for pid %d", procs.SignalName(sig), pid)
		}}
		for rank, p := range g.pids {
			if p == pid {
				m.LocalRank = rank
				m.Signal = func(sig syscall.Signal) { g.exit(procs.Exit{LocalRank: rank, Signal: sig, At: time.Now()}) }
				return m, nil
			}
		}
		switch pid {
		case 900:
			return m, nil
		case 800:
			return procs.Member{}, procs.ErrGone
		}
		return procs.Member{}, procs.ErrNotMember
	}
}

// A worker whose timer has expired gets the signal that it has chosen, and is the root cause.
func TestTimerExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b, timers := newTimerHarness(t, &log, WorkerSpec{MaxRestarts: 1}, membersOf, membersOf)
		wait := b.start(t.Context())
		timers.expire(TimerExpiry{PID: 101, Scope: "train.py#7", Signal: syscall.SIGKILL, After: 2 * time.Second})
		if !strings.Contains(log.String(), `"scope":"train.py#7","after":"2s","pid":101,"rank":1,"local_rank":1,"signal":"SIGKILL"`) {
			t.Errorf("log: %s", &log)
		}
		timers.expire(TimerExpiry{PID: 200, Scope: "eval", Signal: syscall.SIGTERM, After: time.Minute})
		r, err := wait()
		if err != nil {
			t.Fatal(err)
		}
		root, _ := r.RootCause()
		want := failure.Finding{
			Kind: failure.TimerExpired, Time: root.Time,
			Text: "the timer of scope eval expired after 1m, and pid 200 got SIGTERM",
		}
		if diff := cmp.Diff([]failure.Finding{want}, root.Findings); diff != "" || root.Summary != want.Text || root.ShellCode() != 143 {
			t.Errorf("%d, %q\n%s", root.ShellCode(), root.Summary, diff)
		}
		if timers.resets != 2 {
			t.Errorf("%d resets for two starts", timers.resets)
		}
	})
}

// Nobody is signaled but processes of the group, and these only if they ask for it.
func TestTimersOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b, timers := newTimerHarness(t, &log, WorkerSpec{}, membersOf)
		wait := b.start(t.Context())
		timers.expire(TimerExpiry{PID: 1, Scope: "a", Signal: syscall.SIGKILL}, TimerExpiry{PID: 2, Scope: "b", Signal: syscall.SIGKILL})
		timers.expire(TimerExpiry{PID: 800, Scope: "gone", Signal: syscall.SIGKILL}, TimerExpiry{PID: 100, Scope: "no signal"})
		timers.expire(TimerExpiry{PID: 900, Scope: "daemon", Signal: syscall.SIGUSR1})
		allSucceed(b.group())
		if r, err := wait(); err != nil || r.State != Succeeded {
			t.Errorf("%v, %v", r.State, err)
		}
		signals := slices.DeleteFunc(b.list(), func(s string) bool { return !strings.Contains(s, " for pid ") })
		if diff := cmp.Diff([]string{"SIGUSR1 for pid 900"}, signals); diff != "" {
			t.Error(diff)
		}
		for text, want := range map[string]int{
			`"pid":1,"scope":"a","error":"the process is neither a worker nor a descendant of one"`: 1,
			`"scope":"b"`: 0, `"scope":"gone"`: 0, `names no signal`: 1, `"scope":"daemon"`: 1,
		} {
			if n := strings.Count(log.String(), text); n != want {
				t.Errorf("%d lines with %s:\n%s", n, text, &log)
			}
		}
	})
}

func TestWithTimer(t *testing.T) {
	start := time.Unix(1000, 0)
	expired := expiredTimer{TimerExpiry{PID: 7, Scope: "s", Signal: syscall.SIGTERM, After: time.Second}, start}
	of := func(kinds ...failure.Kind) (all []failure.Finding) {
		for _, k := range kinds {
			all = append(all, failure.Finding{Kind: k})
		}
		return all
	}
	end := func(after time.Duration, code int) procs.Exit { return procs.Exit{Code: code, At: start.Add(after)} }
	for _, tt := range []struct {
		name     string
		timer    expiredTimer
		exit     procs.Exit
		findings []failure.Finding
		want     []failure.Finding
	}{
		{"the signal", expired, end(0, 0), nil, nil},
		{"an exit because of the signal", expired, end(0, 143), of(failure.Exited), of(failure.TimerExpired)},
		{
			"an error because of the signal", expired, end(time.Second, 1), of(failure.ErrorFile, failure.Exited),
			of(failure.TimerExpired, failure.ErrorFile),
		},
		{
			"the OOM killer was first", expired, end(0, 137), of(failure.OOMKilled, failure.Killed),
			of(failure.OOMKilled, failure.TimerExpired),
		},
		{"an end much later", expired, end(2*time.Minute, 3), of(failure.Exited), of(failure.Exited)},
		{"a stop", expired, procs.Exit{Signal: syscall.SIGTERM, At: start, Stopped: true}, nil, nil},
		{"no timer", expiredTimer{}, end(0, 1), of(failure.Exited), of(failure.Exited)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []failure.Finding
			for _, f := range tt.timer.withTimer(tt.findings, tt.exit) {
				got = append(got, of(f.Kind)...)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
