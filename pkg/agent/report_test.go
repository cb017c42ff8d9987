package agent

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/procs"
)

var update = flag.Bool("update", false, "rewrite golden files")

func failure(rank int, at int64, e procs.Exit) Failure {
	e.LocalRank, e.PID = rank, 1000+rank
	return Failure{Host: "node1", LocalRank: rank, GlobalRank: rank, Exit: e, Time: time.Unix(at, 0).UTC()}
}

func TestReport(t *testing.T) {
	plain := failure(1, 100, procs.Exit{Code: 7})
	plain.StderrTail = []string{"", "Traceback (most recent call last):", `  File "train.py", line 3, in <module>`, "ValueError: boom", ""}
	plain.LogFile = "/logs/run/attempt_0/1/stderr.log"
	recorded := failure(0, 101, procs.Exit{Code: 1})
	recorded.ErrorFile = "/logs/run/attempt_0/0/error.json"
	recorded.Error = &ErrorFile{Message: "ValueError: no", CallStack: "Traceback (most recent call last):\n  here\nValueError: no\n"}
	garbled := failure(2, 102, procs.Exit{Code: 1})
	garbled.ErrorFile, garbled.ErrorFileProblem = "/logs/e.json", "parse error file: unexpected end of JSON input"
	remote := &Failure{
		Host: "node7", GlobalRank: 60, LocalRank: 4, Exit: procs.Exit{PID: 4711, Signal: syscall.SIGKILL}, Time: time.Unix(99, 0).UTC(),
		Text: "Signal 9 (SIGKILL) received by PID 4711\nlast lines of stderr:\n  step 7",
	}
	causes := map[string]*Failure{"elsewhere": remote, "elsewhere_and_here": remote}
	tests := map[string][]Failure{
		"elsewhere":          nil,
		"elsewhere_and_here": {plain, recorded},

		"traceback":     {plain},
		"signal":        {failure(3, 100, procs.Exit{Signal: syscall.SIGSEGV})},
		"cannot_start":  {failure(0, 100, procs.Exit{Code: 127, StartErr: errors.New("execute ./x: no such file or directory")})},
		"several":       {plain, recorded, garbled},
		"nothing_known": {failure(0, 100, procs.Exit{Code: 1})},
	}
	for name, failures := range tests {
		t.Run(name, func(t *testing.T) {
			r := RunResult{State: Failed, Failures: map[int]Failure{}, Cause: causes[name]}
			for _, f := range failures {
				r.Failures[f.GlobalRank] = f
			}
			got := Report("train.py", r)
			golden := filepath.Join("testdata", "report", name+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := Report("x", RunResult{State: Failed}); got != "" {
		t.Errorf("nothing to report: %q", got)
	}
}

func TestRootCause(t *testing.T) {
	with := func(f Failure, tail ...string) Failure {
		f.StderrTail = tail
		return f
	}
	recorded := failure(0, 105, procs.Exit{Code: 1})
	recorded.Error = &ErrorFile{Message: "RuntimeError: Connection closed by peer [127.0.0.1]:1"}
	tests := []struct {
		name     string
		failures []Failure
		want     int
	}{
		{"the first", []Failure{failure(2, 101, procs.Exit{Code: 1}), failure(1, 100, procs.Exit{Code: 1})}, 1},
		{"lower rank at the same time", []Failure{failure(2, 100, procs.Exit{Code: 1}), failure(1, 100, procs.Exit{Code: 1})}, 1},
		{"a crash before an exit", []Failure{failure(0, 100, procs.Exit{Code: 1}), failure(1, 101, procs.Exit{Signal: syscall.SIGSEGV})}, 1},
		{"a peer's error is no cause", []Failure{
			with(failure(0, 100, procs.Exit{Code: 1}), "Traceback", "RuntimeError: [gloo] Connection closed by peer", ""),
			with(failure(1, 101, procs.Exit{Code: 3}), "Traceback", "ValueError: boom"),
		}, 1},
		{"nor in an error file", []Failure{recorded, failure(1, 106, procs.Exit{Code: 3})}, 1},
		{"NCCL's watchdog aborts because of a peer", []Failure{
			with(failure(0, 100, procs.Exit{Signal: syscall.SIGABRT}), "Watchdog caught collective operation timeout"),
			with(failure(1, 101, procs.Exit{Code: 3}), "ValueError: boom"),
		}, 1},
		{"an exception after a peer's error counts", []Failure{
			with(failure(0, 100, procs.Exit{Code: 1}), "Connection reset by peer", "ValueError: own"),
			with(failure(1, 101, procs.Exit{Code: 3}), "ValueError: boom"),
		}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := RunResult{State: Failed, Failures: map[int]Failure{}}
			for _, f := range tt.failures {
				r.Failures[f.GlobalRank] = f
			}
			if got, ok := r.RootCause(); !ok || got.GlobalRank != tt.want {
				t.Errorf("root cause is rank %d, want %d", got.GlobalRank, tt.want)
			}
		})
	}
	if _, ok := (RunResult{}).RootCause(); ok {
		t.Error("a root cause of nothing")
	}
}

func TestIsVictim(t *testing.T) {
	const term = syscall.SIGTERM
	began := time.Unix(1000, 0)
	file := func(message string, at int64) *ErrorFile {
		return &ErrorFile{Message: message, Written: time.Unix(at, 0)}
	}
	own := []string{"ValueError: boom"}
	tests := []struct {
		name string
		f    Failure
		want bool
	}{
		{"ended before the stop", Failure{Exit: procs.Exit{Code: 1}}, false},
		{"killed before the stop", Failure{Exit: procs.Exit{Signal: term}}, false},
		{"obeyed", Failure{Exit: procs.Exit{Signal: term, Stopped: true}, StderrTail: own}, true},
		{"had to be killed", Failure{Exit: procs.Exit{Signal: syscall.SIGKILL, Stopped: true}, StderrTail: own}, true},
		{"reacted", Failure{Exit: procs.Exit{Code: 143, Stopped: true}}, true},
		{"failed by itself meanwhile", Failure{Exit: procs.Exit{Code: 1, Stopped: true}, StderrTail: own}, false},
		{"was failing already", Failure{Exit: procs.Exit{Signal: term, Stopped: true}, Error: file("ValueError: boom", 999)}, false},
		{"was failing already because of a peer", Failure{Exit: procs.Exit{Signal: term, Stopped: true}, Error: file("Connection reset by peer", 999)}, true},
		{"recorded the signal itself", Failure{Exit: procs.Exit{Signal: term, Stopped: true}, Error: file("SignalException", 1001)}, true},
	}
	for _, tt := range tests {
		if got := tt.f.isVictim(term, began); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestHappened(t *testing.T) {
	at := func(ms int64) time.Time { return time.UnixMilli(ms) }
	tests := []struct {
		name           string
		stamp, written int64
		want           int64
	}{
		{"the file tells the fraction", 100_000, 100_700, 100_700},
		{"the file was touched later", 100_000, 104_000, 100_000},
		{"the file is older than it says", 100_000, 90_000, 100_000},
	}
	for _, tt := range tests {
		f := Failure{Exit: procs.Exit{At: at(200_000)}, Error: &ErrorFile{Timestamp: at(tt.stamp), Written: at(tt.written)}}
		if got := f.happened(); !got.Equal(at(tt.want)) {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	if f := (Failure{Exit: procs.Exit{At: at(7)}}); !f.happened().Equal(at(7)) {
		t.Error("no error file: not the time of the exit")
	}
}

func TestHasOwnError(t *testing.T) {
	tests := []struct {
		tail string
		want bool
	}{
		{"", false},
		{"just text", false},
		{"ValueError: boom", true},
		{"torch.cuda.OutOfMemoryError: CUDA out of memory", true},
		{"KeyboardInterrupt", false},
		{"RuntimeError: Connection reset by peer", false},
	}
	for _, tt := range tests {
		f := Failure{StderrTail: strings.Split(tt.tail, "\n")}
		if got := f.hasOwnError(); got != tt.want {
			t.Errorf("%q: %v", tt.tail, got)
		}
	}
}
