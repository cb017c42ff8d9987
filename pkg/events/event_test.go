package events

import (
	"bytes"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the example in docs/events.md")

const page = "../../docs/events.md"

// example returns the events of a job with one failure.
func example() []Event {
	first := func(r Event) Event { r.NodeRank, r.Round = new(0), new(0); return r }
	second := func(r Event) Event { r.NodeRank, r.Round = new(0), new(1); return r }
	worker := func(rank, pid int, r Event) Event { r.Rank, r.LocalRank, r.PID = &rank, &rank, pid; return r }
	return []Event{
		{Kind: KindLauncherStarted, Name: "train.py", Version: "1.0.0", Backend: "c10d", LocalWorldSize: 2, PID: 4001},
		{Kind: KindWaiting},
		first(Event{Kind: KindRound, Verdict: VerdictFirst, Nodes: 1, WorldSize: 2, Restarts: new(0), MaxRestarts: new(3)}),
		first(worker(0, 4010, Event{Kind: KindWorkerStarted})),
		first(worker(1, 4011, Event{Kind: KindWorkerStarted})),
		first(worker(1, 4011, Event{Kind: KindWorkerEnded, ExitCode: new(1)})),
		first(Event{Kind: KindStop, Why: "local rank 1: exited with code 1"}),
		first(worker(0, 4010, Event{Kind: KindWorkerEnded, ExitCode: new(143), Signal: "SIGTERM", Stopped: true})),
		first(worker(1, 4011, Event{
			Kind: KindFailure, ExitCode: new(1), Cause: "exception",
			Summary: "ValueError: loss is not finite",
		})),
		first(Event{Kind: KindWaiting}),
		second(Event{
			Kind: KindRound, Verdict: VerdictRestart, Nodes: 1, WorldSize: 2, Restarts: new(1),
			MaxRestarts: new(3),
		}),
		second(worker(0, 4020, Event{Kind: KindWorkerStarted})),
		second(worker(1, 4021, Event{Kind: KindWorkerStarted})),
		second(worker(0, 4020, Event{Kind: KindWorkerEnded, ExitCode: new(0)})),
		second(worker(1, 4021, Event{Kind: KindWorkerEnded, ExitCode: new(0)})),
		second(Event{Kind: KindSucceeded}),
		second(Event{Kind: KindEnd, Restarts: new(1), ExitCode: new(0), Reason: "success"}),
	}
}

// TestExample keeps the example of docs/events.md true.
func TestExample(t *testing.T) {
	var text bytes.Buffer
	for i, r := range example() {
		r.Seq, r.RunID, r.Host = int64(i), "job7", "node1"
		r.Time = time.Date(2026, 5, 4, 3, 2, 1, 123456789, time.UTC).Add(time.Duration(i) * time.Second)
		line, err := r.line()
		if err != nil {
			t.Fatal(err)
		}
		text.Write(line)
	}
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- example -->\n", "<!-- end example -->\n"
	before, rest, ok := strings.Cut(string(old), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatal("docs/events.md has no place for the example")
	}
	want := before + begin + "```json\n" + text.String() + "```\n" + end + after
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(old)); diff != "" {
		t.Errorf("docs/events.md is out of date; go test ./pkg/events -update rewrites it (-want +got):\n%s", diff)
	}
}

// TestEveryFieldIsDescribed looks for each field and each kind in docs/events.md.
func TestEveryFieldIsDescribed(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	described := func(name string) {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/events.md does not describe %s", name)
		}
	}
	for _, what := range []reflect.Type{reflect.TypeFor[Event](), reflect.TypeFor[RootCause]()} {
		for field := range what.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "-" { // the event log leaves it out
				described(name)
			}
		}
	}
	for _, kind := range []Kind{
		KindLauncherStarted, KindWaiting, KindRound, KindWorkerStarted, KindWorkerEnded, KindStop, KindFailure, KindSucceeded,
		KindEnd,
	} {
		described(string(kind))
	}
}
