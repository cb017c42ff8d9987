package status

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/goodput"
	"github.com/elasticrun/elasticrun/pkg/report"
)

var update = flag.Bool("update", false, "rewrite the examples in docs/status.md")

const statusPage = "../../docs/status.md"

// sample is the node of life while its workers run, in the third round.
func sample() Snapshot {
	var b Tracker
	records, _ := life()
	for _, r := range records[:15] {
		b.Emit(r)
	}
	for _, r := range []events.Event{
		{Kind: events.KindStep, Step: events.StepStop, Duration: 250 * time.Millisecond},
		{Kind: events.KindStep, Step: events.StepStop, Duration: 750 * time.Millisecond},
		{Kind: events.KindStep, Step: events.StepRendezvous, Duration: 2 * time.Second, RawError: "timeout"},
		{Kind: events.KindState, State: "FAILED"},
		{Kind: events.KindState, State: "HEALTHY"},
	} {
		r.Group.Restarts = 1
		b.Emit(at(15, 2, r))
	}
	s := b.Snapshot()
	s.Time = report.Time{Time: epoch.Add(60 * 1e9)}
	s.Workers[0].Usage = &Usage{Processes: 5, CPUPercent: new(101.5), RSSBytes: 3 << 30}
	s.Workers[1].Usage = &Usage{Processes: 5, CPUPercent: new(99.8), RSSBytes: 3 << 30}
	s.Workers[0].LastLine = "step 1200 loss 0.31"
	s.Workers[0].Quiet, s.Workers[0].Sign, s.Workers[0].Step = new(3.2), "step 1200", new(int64(1200))
	s.Goodput = &goodput.Goodput{
		Startup: 52, Running: 230.4, Lost: 12.6, Detection: 1.2, Standstill: 18, Idle: 3, Steps: true,
	}
	s.GPUs = []GPU{{
		UtilizationPercent: new(97), MemoryUsedBytes: new(int64(60 << 30)),
		MemoryTotalBytes: new(int64(80 << 30)),
	}}
	return s
}

// TestExamples keeps the examples of docs/status.md true.
func TestExamples(t *testing.T) {
	old, err := os.ReadFile(statusPage)
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := json.MarshalIndent(sample(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	doc := replaceBetween(t, old, "json", "```json\n"+string(snapshot)+"\n```\n")
	doc = replaceBetween(t, doc, "metrics", metricsTable(t, sample()))
	doc = replaceBetween(t, doc, "text", "```\n"+sampleJob().Text()+"```\n")
	if *update {
		if err := os.WriteFile(statusPage, doc, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(doc), string(old)); diff != "" {
		t.Errorf("docs/status.md is out of date; go test ./internal/status -update rewrites it (-want +got):\n%s", diff)
	}
}

// metricsTable describes the metrics that are served for s.
func metricsTable(t *testing.T, s Snapshot) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| name | labels | meaning |\n|---|---|---|\n")
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(exposed(t, s)))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		f := families[name]
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, strings.Join(labels, ", "), f.GetHelp())
	}
	return b.String()
}

// replaceBetween replaces what stands between two comments.
func replaceBetween(t *testing.T, doc []byte, name, text string) []byte {
	t.Helper()
	begin, end := []byte("<!-- "+name+" -->\n"), []byte("<!-- end "+name+" -->\n")
	before, rest, ok := bytes.Cut(doc, begin)
	_, after, ended := bytes.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("docs/status.md has no place for %s", name)
	}
	return bytes.Join([][]byte{before, begin, []byte(text), end, after}, nil)
}

// sampleJob returns a job with the node of sample among others.
func sampleJob() Job {
	s := sample()
	waiting := Snapshot{State: Waiting, Since: report.Time{Time: epoch.Add(20 * 1e9)}, LocalWorldSize: 2}
	return Job{
		Schema: Schema, Time: s.Time, RunID: s.RunID, Round: &Round{
			Number: 2, Nodes: 4, WorldSize: 8, Restarts: 1,
			MaxRestarts: 2,
		},
		Nodes: []Node{
			{Rank: new(0), Host: "node1", Workers: 2},
			{Rank: new(1), Host: "node3", Workers: 2, Status: &s},
			{Rank: new(2), Host: "node4", Workers: 2, Note: "lost"},
			{Rank: new(3), Host: "node6", Workers: 2, Left: true, Note: "had finished and left"},
			{Host: "node5", Workers: 2, Note: "the job has its 4 nodes: this one is a spare", Status: &waiting},
		},
	}
}

func TestText(t *testing.T) {
	one := OfAgent(sample())
	one.Nodes[0].Host = "node3\x1b[2J\tx\n"
	const want = `run id job7: round 2, 3 nodes, 6 workers, 1 of 2 restarts

NODE  HOST     STATE    FOR  WORKERS  CPU  MEMORY  GPU                LAST LINE
1     node3 x  running  46s  2/2      2.0  6.0GiB  1 x 97%, 75% full  step 1200 loss 0.31

RANK  LOCAL  PID  STATE    FOR  CPU  MEMORY  STEP  QUIET  LAST LINE
2     0      240  running  46s  1.0  3.0GiB  1200  3s     step 1200 loss 0.31
3     1      241  running  46s  1.0  3.0GiB  -     -

goodput: 72.6 % training, 16.4 % start-up, 5.7 % standstill, 4.0 % lost work, 0.9 % idle, 0.4 % detection

last failure: rank 3 on node3 x in round 0, 51s ago: boom
`
	if diff := cmp.Diff(want, one.Text()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := (Job{
		RunID: "r", Result: "failed",
		Why: "not restarted: node1 had finished and left, so the job cannot be restarted\nwithout it; start it again",
	}).Text(); got != "run id r: ended: failed: not restarted: node1 had finished and left, so the job cannot be "+
		"restarted without it; start it again\n" {
		t.Errorf("%q", got)
	}
}

func TestAges(t *testing.T) {
	for seconds, want := range map[float64]string{-5: "0s", 59.9: "59s", 60: "1m", 65: "1m05s", 3661: "1h01m", 90000: "1d01h"} {
		now := epoch.Add(1e15)
		if got := age(now, report.Time{Time: now.Add(-time.Duration(seconds * float64(time.Second)))}); got != want {
			t.Errorf("%v s: %s, want %s", seconds, got, want)
		}
	}
}
