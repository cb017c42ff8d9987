package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// story describes for each round how it ended, why, and which worker failed.
func story(r report.Report) (out []string) {
	for _, round := range r.Rounds {
		line := fmt.Sprintf("round %d after %d restarts of %d workers: %s %q", round.Number, round.Restarts, round.Workers,
			round.End, round.Why)
		if round.Failure != nil {
			line += fmt.Sprintf(" rank %d", round.Failure.Rank)
		}
		if round.Started.IsZero() || round.Ended.Before(round.Started.Time) {
			line += " at no time"
		}
		out = append(out, line)
	}
	return out
}

func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, WorkerSpec{MaxRestarts: 3}, exits(procs.Exit{LocalRank: 1, Code: 7}), runsOn, allSucceed)
		wait := b.start(t.Context())
		<-time.After(time.Second)
		b.rdzv.failElsewhere(1)
		r, err := wait()
		if err != nil {
			t.Fatal(err)
		}
		got := b.agent.Report(r)
		want := []string{
			`round 0 after 0 restarts of 2 workers: failure "exited with code 7" rank 1`,
			`round 1 after 1 restarts of 2 workers: stopped "a worker of node7 failed"`,
			`round 2 after 2 restarts of 2 workers: success ""`,
		}
		if diff := cmp.Diff(want, story(got)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got.RootCause != nil || got.Restarts != 2 || *got.Round != 2 || *got.NodeRank != 0 || got.RoundCount != 3 ||
			got.RunID != "run-1" {
			t.Errorf("%+v", got)
		}
		var attempts []string
		for _, dir := range got.Attempts {
			attempts = append(attempts, filepath.Base(dir))
		}
		if diff := cmp.Diff([]string{"attempt_0", "attempt_1", "attempt_2"}, attempts); diff != "" {
			t.Errorf("attempts (-want +got):\n%s", diff)
		}
	})
}

// The last round has an end, however the run ends.
func TestHistoryEnds(t *testing.T) {
	cause := &SignalError{Signal: syscall.SIGTERM}
	for _, tt := range []struct {
		name  string
		setUp func(b *harness, cancel context.CancelCauseFunc)
		want  string
	}{
		{
			"a failure", func(b *harness, _ context.CancelCauseFunc) { b.group().exit(procs.Exit{Code: 3}) },
			`failure "exited with code 3" rank 0`,
		},
		{"a signal", func(_ *harness, cancel context.CancelCauseFunc) { cancel(cause) }, `signal "received SIGTERM"`},
		{"a signal whose effect on a worker is seen first", func(b *harness, cancel context.CancelCauseFunc) {
			b.group().exit(procs.Exit{Signal: syscall.SIGTERM, At: time.Now()})
			synctest.Wait()
			cancel(cause)
		}, `signal "received SIGTERM"`},
		{
			"the guard is gone", func(_ *harness, cancel context.CancelCauseFunc) { cancel(errors.New("no guard")) },
			`error "no guard"`,
		},
		{"the job fails elsewhere while the others have succeeded", func(b *harness, _ context.CancelCauseFunc) {
			b.rdzv.succeed = func(int) (*rdzv.Stop, error) {
				return nil, &rdzv.EndedError{Outcome: rdzv.Outcome{Ending: rdzv.EndFailed, Text: "rank 60 failed"}}
			}
			allSucceed(b.group())
		}, `stopped "rank 60 failed"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newHarness(t, WorkerSpec{}, runsOn)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				wait := b.start(ctx)
				tt.setUp(b, cancel)
				r, _ := wait()
				want := []string{"round 0 after 0 restarts of 2 workers: " + tt.want}
				if diff := cmp.Diff(want, story(b.agent.Report(r))); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestHistoryIsBounded(t *testing.T) {
	var h history
	h.reopen() // of no round
	h.end(report.EndError, "", nil)
	for i := range 3 * report.MaxRounds {
		h.begin(&rdzv.Round{Number: i}, time.Now())
		h.end(report.EndStopped, "", nil)
		h.end(report.EndSuccess, "", nil) // too late
	}
	if h.count != 3*report.MaxRounds || len(h.rounds) != report.MaxRounds || h.last().Number != h.count-1 ||
		h.last().End != report.EndStopped {
		t.Errorf("%d rounds, %d kept, the last %+v", h.count, len(h.rounds), h.last())
	}
}

// TestStartReason checks why a round follows the one before, in words for people.
func TestStartReason(t *testing.T) {
	for _, tt := range []struct {
		how, why   string
		failure    *failure.Failure
		membership bool
		want       string
	}{
		{how: report.EndFailure, why: "exited with code 1", failure: &failure.Failure{GlobalRank: 2}, want: "restarted after rank 2 failed: exited with code 1"},
		{how: report.EndStopped, why: "a worker has failed on node1", failure: &failure.Failure{}, want: "restarted: a worker has failed on node1"},
		{how: report.EndStopped, why: "node2 has joined", membership: true, want: "a new round: node2 has joined"},
		{how: report.EndStopped, want: "restarted"},
	} {
		var h history
		h.begin(&rdzv.Round{}, time.Now())
		if got := h.startReason(tt.membership); got != "" {
			t.Errorf("the first round: %q", got)
		}
		h.end(tt.how, tt.why, tt.failure)
		h.begin(&rdzv.Round{Number: 1}, time.Now())
		if got := h.startReason(tt.membership); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// The report puts the root cause of the whole job first, and lists no worker twice.
func TestReportOthers(t *testing.T) {
	b := newHarness(t, WorkerSpec{}, runsOn)
	problem := "parse error file: no"
	own := failureOf(1, 100, procs.Exit{Code: 7}, workerEvidence{
		errorFileProblem: problem,
		tail:             []string{"", "ValueError", ""},
	})
	own.ErrorFile, own.ErrorFileProblem = "/e.json", problem
	sent := outgoing(own, time.Unix(100, 0))
	others := []failure.Failure{incoming(sent, time.Unix(100, 0)), incoming(*remote(), time.Unix(99, 0))}
	other := *remote()
	other.GlobalRank, other.Host, other.Text, other.Summary, other.Kind, other.ErrorFile = 70, "node8", "",
		"ValueError: there", "error_file", "/there/error.json"
	others = append(others, incoming(other, time.Unix(99, 0)))
	r := RunResult{
		State: Failed, Failures: map[int]failure.Failure{1: own}, Others: others,
		Cause: rootCause(remote(), nil, time.Unix(99, 0)),
	}
	got := b.agent.Report(r)
	at := func(sec int64) report.Time { return report.Time{Time: time.Unix(sec, 0)} }
	want := report.Report{
		Name: "train.py", RunID: "run-1",
		RootCause: &report.Failure{
			Host: "node7", Rank: 60, LocalRank: 4, PID: 4711, Time: at(99), ExitCode: 139, PythonCode: -11, Signal: "SIGSEGV",
			Kind: "killed", Summary: "killed by signal 11 (SIGSEGV)", Text: "Signal 11",
		},
		Failures: []report.Failure{{
			Host: "node1", Rank: 1, LocalRank: 1, PID: 1001, Time: at(100), ExitCode: 7, PythonCode: 7, Kind: "exited",
			Summary:   "exited with code 7",
			ErrorFile: "/e.json", ErrorFileProblem: "parse error file: no",
			Text: "parse error file: no\nlast lines of stderr:\n  ValueError",
		}},
		OtherNodes: []report.Failure{{
			Host: "node8", Rank: 70, LocalRank: 4, PID: 4711, Time: at(99), ExitCode: 139, PythonCode: -11, Signal: "SIGSEGV",
			Kind: "error_file", Summary: "ValueError: there", ErrorFile: "/there/error.json",
			Findings: []report.Finding{{Kind: "error_file", Time: at(99), Text: "ValueError: there"}},
		}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(report.Report{}, "Host")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFailureText(t *testing.T) {
	tests := []struct {
		name string
		x    procs.Exit
		e    workerEvidence
		want string
	}{
		{name: "an error file", e: workerEvidence{
			errorFile: &errorFile{Message: "m", CallStack: "Traceback\nm\n"},
			tail:      []string{"x"},
		}, want: "Traceback\nm"},
		{name: "without a traceback", e: workerEvidence{errorFile: &errorFile{Message: "m"}}, want: "m"},
		{name: "a signal", x: procs.Exit{Signal: syscall.SIGKILL, PID: 7}, want: "Signal 9 (SIGKILL) received by PID 7"},
		{name: "nothing", x: procs.Exit{Code: 1}, want: "<none: the worker wrote nothing to stderr and no error file>"},
		{
			name: "could not be started", x: procs.Exit{Code: 127, StartErr: errors.New("execute ./x: no such file")},
			want: "could not be executed: execute ./x: no such file",
		},
	}
	for _, tt := range tests {
		if got := failureText(tt.x, tt.x.String(), tt.e); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := incoming(rdzv.Failure{}, time.Now()).Text; got != "" {
		t.Errorf("another node's failure, which has no text: %q", got)
	}
}
