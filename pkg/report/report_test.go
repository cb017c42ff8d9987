package report

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite golden files and the example of docs/report.md")

// at returns a time in milliseconds after the start of the example. Its time zone is not UTC, unlike that of reports.
func at(ms int) Time {
	return Time{time.Date(2026, 3, 1, 13, 0, 0, 0, time.FixedZone("", 3600)).Add(time.Duration(ms) * time.Millisecond)}
}

// example returns the report of node0 in a job of two nodes: a signal killed a worker once, and then a worker failed on
// node1.
func example() Report {
	nodeRank, round := 0, 1
	const logs = "/logs/job7_x2k9q0ab"
	killed := Failure{
		Host: "node0", Rank: 3, LocalRank: 3, PID: 4103, Time: at(61_500), ExitCode: 137, PythonCode: -9, Signal: "SIGKILL",
		Kind: "killed", Summary: "killed by signal 9 (SIGKILL), not by the kernel's OOM killer",
		Findings: []Finding{{"killed", at(61_500), "killed by signal 9 (SIGKILL), not by the kernel's OOM killer"}},
		LogFile:  logs + "/attempt_0/3/stderr.log", Text: "Signal 9 (SIGKILL) received by PID 4103",
	}
	root := Failure{
		Host: "node1", Rank: 9, LocalRank: 1, PID: 907, Time: at(95_250), ExitCode: 1, PythonCode: 1, Kind: "error_file",
		Summary: "ValueError: no data", Findings: []Finding{{"error_file", at(95_250), "ValueError: no data"}},
		ErrorFile: "/logs/job7_p0o1_2ef/attempt_1/1/error.json", Message: "ValueError: no data",
		Text: "Traceback (most recent call last):\n  File \"train.py\", line 3, in main\nValueError: no data",
	}
	victim := Failure{
		Host: "node0", Rank: 0, LocalRank: 0, PID: 4200, Time: at(95_400), ExitCode: 1, PythonCode: 1, Kind: "peer_lost",
		Summary: "RuntimeError: Connection closed by peer", LogFile: logs + "/attempt_1/0/stderr.log",
		ErrorFile: logs + "/attempt_1/0/error.json", ErrorFileProblem: "parse error file: unexpected end of JSON input",
		Text: "last lines of stderr:\n  RuntimeError: Connection closed by peer",
	}
	third := Failure{
		Host: "node2", Rank: 16, PID: 77, Time: at(95_900), ExitCode: 134, PythonCode: -6, Signal: "SIGABRT",
		CoreDumped: true, Kind: "peer_lost", Summary: "NCCL watchdog: a peer is gone",
	}
	return Report{
		Version: "1.0.0", RunID: "job7", Name: "train.py", Script: "/home/u/train.py", Interpreter: "/home/u/.venv/bin/python",
		Host: "node0", NodeRank: &nodeRank, Round: &round,
		Started: at(0), Ended: at(97_123), ExitCode: 1, Reason: "worker_failed", Restarts: 1,
		Rounds: []Round{
			{
				Number: 0, Nodes: 3, Workers: 24, Started: at(1_000), Ended: at(61_600), End: EndFailure, Why: killed.Summary,
				LogDir: logs + "/attempt_0", Failure: &killed,
			},
			{
				Number: 1, Restarts: 1, Nodes: 3, Workers: 24, Started: at(62_000), Ended: at(97_000), End: EndStopped,
				Why: "rank 9 on node1 failed", LogDir: logs + "/attempt_1",
			},
		},
		RootCause: &root, Failures: []Failure{victim}, OtherNodes: []Failure{third},
		LogDir: logs, Attempts: []string{logs + "/attempt_0", logs + "/attempt_1"},
		FlightRecorder: []string{logs + "/attempt_1/nccl_trace_rank_0"},
		Warnings: []Warning{{
			at(62_001), "warn",
			"output of a worker is being lost: write /logs/x: no space left on device (local_rank=2)",
		}},
	}
}

// docs/report.md contains the example verbatim and describes every field.
func TestDocumentation(t *testing.T) {
	const path, begin, end = "../../docs/report.md", "<!-- example -->\n```json\n", "```\n<!-- end of the example -->"
	want, err := example().JSON()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(doc), begin)
	got, tail, found := strings.Cut(rest, end)
	if !found {
		t.Fatalf("%s has no example", path)
	}
	if *update {
		if err := os.WriteFile(path, []byte(head+begin+string(want)+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		got = string(want)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s; go test ./pkg/report -update rewrites it (-want +got):\n%s", path, diff)
	}
	for _, v := range []any{Report{}, Round{}, Failure{}, Finding{}, Warning{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !strings.Contains(head+tail, "| `"+name+"` |") {
				t.Errorf("%s does not explain %s of %T", path, name, v)
			}
		}
	}
}

func TestJSONOfNothing(t *testing.T) {
	got, err := Report{Reason: "usage", ExitCode: 2}.JSON()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "nothing.json", string(got))
}

// The output of workers has no limit, but the report has.
func TestBounds(t *testing.T) {
	long := strings.Repeat("\xff<é\n", 1<<17)
	f := Failure{Text: long, Summary: long, Message: long, ErrorFileProblem: long, Findings: []Finding{{Text: long}}}
	r := Report{RootCause: &f, Error: long, Note: long}
	for range 1000 {
		r.Rounds = append(r.Rounds, Round{Why: "why"})
		r.Warnings = append(r.Warnings, Warning{Text: "text"})
		r.Attempts = append(r.Attempts, "/a")
		r.FlightRecorder = append(r.FlightRecorder, "/f")
	}
	r.Rounds[999].Number, r.Warnings[0].Text = 999, "the first"
	data, err := r.JSON()
	if err != nil || len(data) > 1<<20 || !utf8.Valid(data) {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	var back Report
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if len(back.Rounds) != MaxRounds || back.RoundCount != 1000 || back.Rounds[MaxRounds-1].Number != 999 {
		t.Errorf("%d rounds of %d", len(back.Rounds), back.RoundCount)
	}
	if len(back.Warnings) != MaxWarnings || back.WarningCount != 1000 || back.Warnings[0].Text != "the first" {
		t.Errorf("%d warnings of %d", len(back.Warnings), back.WarningCount)
	}
	if got := back.RootCause; len(got.Text) > maxText || len(got.Summary) > MaxLine ||
		len(got.Findings[0].Text) > MaxLine || !strings.HasSuffix(got.Text, "<é\n") {
		t.Errorf("text of %d bytes, summary of %d", len(got.Text), len(got.Summary))
	}
	if len(r.Rounds) != 1000 || f.Text != long || f.Findings[0].Text != long {
		t.Error("the caller's report was changed")
	}
}

func TestText(t *testing.T) {
	defer func(local *time.Location) { time.Local = local }(time.Local)
	time.Local = time.UTC
	golden(t, "example.txt", example().Text())

	alone := example()
	alone.Note = "no worker shows a fault of its own"
	alone.RootCause.Text, alone.RootCause.ErrorFile, alone.RootCause.Time = "", "", Time{}
	alone.Failures, alone.OtherNodes, alone.LogDir, alone.FlightRecorder = nil, nil, "", nil
	golden(t, "alone.txt", alone.Text())

	many := example()
	for i := range 40 {
		many.Failures = append(many.Failures, Failure{
			Host: "node0", Rank: i, Summary: "exited with code 1", ExitCode: 1,
			PythonCode: 1,
		})
		many.FlightRecorder = append(many.FlightRecorder, fmt.Sprintf("/logs/nccl_trace_rank_%d", i))
	}
	for i := range 20 {
		past := many.Rounds[0]
		past.Restarts = i
		if i == 5 {
			past.End, past.Why, past.Failure = EndStopped, "a worker has failed on node1", nil
		}
		if i == 19 {
			past.End, past.Restarts = EndSignal, 18 // nobody was charged for that
		}
		many.Rounds = append(many.Rounds, past)
	}
	many.Rounds = append(many.Rounds[2:], many.Rounds[1])
	golden(t, "many.txt", many.Text())

	odd := alone
	const file = "/a\x1b[31m\nelasticrun: exit_code=0.py"
	odd.Name, odd.Script, odd.Interpreter, odd.LogDir, odd.FlightRecorder = file, file+"2", file, file, []string{file}
	if got := odd.Text(); strings.Contains(got, "\nelasticrun") || strings.Count(got, "/a?elasticrun: exit_code=0.py") != 5 {
		t.Errorf("names of files are not in one line each:\n%s", got)
	}

	if got := (Report{Name: "x"}).Text(); got != "" {
		t.Errorf("nothing to report: %q", got)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s; go test ./pkg/report -update rewrites it (-want +got):\n%s", path, diff)
	}
}
