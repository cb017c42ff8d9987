package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/elasticrun/elasticrun/pkg/events"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestKindOf(t *testing.T) {
	round := func(verdict string, change func(*events.Event)) events.Event {
		e := events.Event{
			Kind: events.KindRound, Verdict: verdict, NodeRank: new(0), Restarts: new(1), MaxRestarts: new(3), SameFailures: 1,
		}
		if change != nil {
			change(&e)
		}
		return e
	}
	for _, tt := range []struct {
		name  string
		event events.Event
		only  bool
		want  Kind
	}{
		{"the first round", round(events.VerdictFirst, func(e *events.Event) { e.SameFailures = 0 }), false, ""},
		{"a restart, for a spare that was in no round", round(events.VerdictFirst, nil), false, Restart},
		{"a restart", round(events.VerdictRestart, nil), false, Restart},
		{"a restart, on another node", round(events.VerdictRestart, func(e *events.Event) { e.NodeRank = new(1) }), true, ""},
		{"the last restart", round(events.VerdictRestart, func(e *events.Event) { e.Restarts = new(3) }), false, BudgetSpent},
		{"the same failure", round(events.VerdictRestart, func(e *events.Event) { e.SameFailures = 2 }), false, RepeatedFailure},
		{"the last restart, after the same failure", round(events.VerdictRestart, func(e *events.Event) {
			e.Restarts, e.SameFailures = new(3), 2
		}), false, BudgetSpent},
		{"a lost node", round(events.VerdictMembership, func(e *events.Event) { e.LostNodes = 1 }), false, NodeLost},
		{"a new node", round(events.VerdictMembership, func(e *events.Event) { e.SameFailures = 0 }), false, ""},
		{"a hang", events.Event{Kind: events.KindHang, NodeRank: new(0)}, false, Hang},
		{"a preemption", events.Event{Kind: events.KindPreempted, NodeRank: new(0)}, false, Preempted},
		{"the end", events.Event{Kind: events.KindEnd, NodeRank: new(0)}, false, Ended},
		{"the end on another node", events.Event{Kind: events.KindEnd, NodeRank: new(3)}, false, ""},
		{"the end of a job without a round", events.Event{Kind: events.KindEnd}, false, ""},
		{"the same on its only node", events.Event{Kind: events.KindEnd}, true, Ended},
		{"a worker's end", events.Event{Kind: events.KindWorkerEnded, NodeRank: new(0)}, false, ""},
	} {
		if got := (Options{Only: tt.only}).kindOf(tt.event); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	last := round(events.VerdictRestart, func(e *events.Event) { e.Restarts = new(3) })
	if got := (Options{Windowed: true}).kindOf(last); got != Restart {
		t.Errorf("failures may be forgiven: %q", got)
	}
}

// hang is an event that is a notice.
func hang(summary string) events.Event {
	return events.Event{
		Kind: events.KindHang, NodeRank: new(0), RunID: "job", Summary: summary,
		Time: time.Date(2026, 5, 4, 3, 2, 1, 0, time.FixedZone("", 3600)),
	}
}

func TestNotifier(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notices")
	n := New(t.Context(), Options{Command: "cat >>" + file, Logger: zerolog.New(zerolog.NewTestWriter(t))})
	n.Emit(hang("first"))
	n.Emit(events.Event{Kind: events.KindWaiting, NodeRank: new(0)})
	awaitLines(t, file, 1)
	n.Emit(hang("second"))
	n.Close(t.Context(), 0)
	n.Emit(hang("too late"))
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	want := `{"notice":"hang","time":"2026-05-04T02:02:01Z","event":"hang","run_id":"job","host":"","node_rank":0,` +
		`"round":null,"summary":"first"}`
	if len(lines) != 2 || lines[0] != want || !strings.Contains(lines[1], "second") {
		t.Errorf("%s\nwant\n%s\nand another one", data, want)
	}
}

// TestNotifierIsBounded runs a command that hangs: Emit does not wait for it, the oldest notices are left out, and
// Close ends the command.
func TestNotifierIsBounded(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "go")
	var logged bytes.Buffer
	n := New(t.Context(), Options{
		Command: "touch " + dir + "/began; until [ -e " + fifo + " ]; do sleep 0.02; done; cat >>" + dir + "/notices",
		Logger:  zerolog.New(zerolog.SyncWriter(&logged)), Limit: time.Minute,
	})
	n.Emit(hang("first"))
	for until := time.Now().Add(30 * time.Second); ; <-time.After(5 * time.Millisecond) {
		if _, err := os.Stat(dir + "/began"); err == nil {
			break
		}
		if time.Now().After(until) {
			t.Fatal("the command was not run")
		}
	}
	for range maxWaiting + 5 {
		n.Emit(hang("more"))
	}
	if err := os.WriteFile(fifo, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	lines := awaitLines(t, dir+"/notices", 1+maxWaiting)
	n.Close(t.Context(), 0)
	var second notice
	if len(lines) != 1+maxWaiting || json.Unmarshal([]byte(lines[1]), &second) != nil || second.LeftOut != 5 {
		t.Errorf("%d notices, %d left out before the second", len(lines), second.LeftOut)
	}
}

// awaitLines returns the lines of a file once it has that many.
func awaitLines(t *testing.T, file string, count int) []string {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); ; <-time.After(5 * time.Millisecond) {
		data, _ := os.ReadFile(file)
		if lines := strings.Split(string(data), "\n"); len(lines) > count {
			return lines[:len(lines)-1]
		}
		if time.Now().After(until) {
			t.Fatalf("%s has %q, want %d lines", file, data, count)
		}
	}
}

// TestNotifierKeepsTheEnd checks that the last notice is not lost behind a command that hangs on an earlier one.
func TestNotifierKeepsTheEnd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notices")
	n := New(t.Context(), Options{
		Command: "read -r line; case $line in *first*) echo >" + file + ".began; sleep 1000 ;; esac; echo \"$line\" >>" + file,
		Limit:   4 * time.Second, Logger: zerolog.New(zerolog.NewTestWriter(t)),
	})
	n.Emit(hang("first"))
	awaitLines(t, file+".began", 1)
	n.Emit(hang("second"))
	n.Emit(events.Event{Kind: events.KindEnd, NodeRank: new(0)})
	n.Close(t.Context(), 0)
	data, err := os.ReadFile(file)
	if err != nil || strings.Count(string(data), "\n") != 1 || !strings.Contains(string(data), `"notice":"ended","left_out":`) {
		t.Errorf("%s, %v", data, err)
	}
}

// TestNotifierGivesUp checks that a command which never ends is killed.
func TestNotifierGivesUp(t *testing.T) {
	var logged bytes.Buffer
	n := New(t.Context(), Options{
		Command: "sleep 1000 & sleep 1000", Limit: 200 * time.Millisecond,
		Logger: zerolog.New(zerolog.SyncWriter(&logged)), // Close may log, too
	})
	began := time.Now()
	n.Emit(hang("first"))
	n.Emit(hang("second"))
	n.Close(t.Context(), 0)
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
	if !strings.Contains(logged.String(), "--notify-cmd") {
		t.Errorf("logged %s", &logged)
	}
}

// TestNotifierFails checks that the first failure alone is logged, with the last line that the command has written.
func TestNotifierFails(t *testing.T) {
	var logged bytes.Buffer
	n := New(t.Context(), Options{Command: "yes no | head -c 99999; echo 404 >&2; exit 3", Logger: zerolog.New(zerolog.SyncWriter(&logged))})
	n.Emit(hang("first"))
	n.Emit(hang("second"))
	n.Close(t.Context(), 0)
	if got := logged.String(); strings.Count(got, "has failed") != 1 || !strings.Contains(got, `"output":"404"`) {
		t.Errorf("logged %s", got)
	}
}

// TestNotifierEndsEarly checks that Close waits neither after its limit nor after a signal.
func TestNotifierEndsEarly(t *testing.T) {
	for _, tt := range []struct {
		name  string
		limit time.Duration
		end   time.Duration // of the context
	}{{"limit", 50 * time.Millisecond, time.Hour}, {"signal", 0, 50 * time.Millisecond}} {
		var logged bytes.Buffer
		n := New(t.Context(), Options{Command: "sleep 1000", Logger: zerolog.New(zerolog.SyncWriter(&logged)), Limit: time.Minute})
		n.Emit(hang("last"))
		ctx, cancel := context.WithTimeout(t.Context(), tt.end)
		began := time.Now()
		n.Close(ctx, tt.limit)
		cancel()
		if took := time.Since(began); took > 30*time.Second || !strings.Contains(logged.String(), "may be missing") {
			t.Errorf("%s: it took %v, and logged %s", tt.name, took, &logged)
		}
	}
}
