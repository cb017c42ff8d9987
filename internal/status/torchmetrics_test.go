package status

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/events"
)

// TestRunMetrics checks what the end of a run adds, with a role that is not UTF-8 and must be escaped.
func TestRunMetrics(t *testing.T) {
	group := events.Group{Role: "a.\"\xff", Budget: 3, Restarts: 1}
	var b Tracker
	b.Emit(events.Event{Kind: events.KindLauncherStarted, Group: group})
	b.Emit(events.Event{Kind: events.KindRun, State: "FAILED", Duration: time.Minute, Group: group})
	text := exposed(t, b.Snapshot())
	for _, want := range []string{
		"run_total{ROLE} 1", "run_failed_with_retries_total{ROLE} 1", "run_failed_no_retries_total{ROLE} 0",
		"flakiness_ratio{ROLE} 1", `agent_steps_total{outcome="success",ROLE,step="run"} 1`,
		`agent_step_duration_seconds_sum{ROLE,step="run"} 60`,
	} {
		want = namespace + strings.Replace(want, "ROLE", "role=\"a.\\\"\uFFFD\"", 1) + "\n"
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// torchTable returns the table of torch's metrics in docs/status.md.
func torchTable(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(statusPage)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "<!-- torch -->\n")
	table, _, ok := strings.Cut(rest, "<!-- end torch -->\n")
	if !ok {
		t.Fatal("docs/status.md has no table of torch's metrics")
	}
	return table
}

// TestTorchTable holds the table's right side: it names only metrics that are served, and all that have a role.
func TestTorchTable(t *testing.T) {
	served, table := exposed(t, sample()), torchTable(t)
	for _, name := range regexp.MustCompile("`elasticrun_.*?`").FindAllString(table, -1) {
		if !strings.Contains(served, "# TYPE "+strings.Trim(name, "`")+" ") {
			t.Errorf("docs/status.md names %s, which is not served", name)
		}
	}
	for _, sub := range regexp.MustCompile(`(?m)^(\w+?)(_sum|_count)?\{.*role=`).FindAllStringSubmatch(served, -1) {
		if !strings.Contains(table, "`"+sub[1]+"`") {
			t.Errorf("the table in docs/status.md lacks %s", sub[1])
		}
	}
}

// TestTorchNames holds the table's left side: it has every metric that torch's agent puts.
func TestTorchNames(t *testing.T) {
	const script = `
import importlib.util, os, re
agent = os.path.join(os.path.dirname(importlib.util.find_spec("torch").origin), "distributed/elastic/agent/server")
for file in "api.py", "local_elastic_agent.py":
    text = open(os.path.join(agent, file)).read()
    for method in re.findall(r"@prof\s+def (\w+)", text):
        print("method", method)
    for name in re.findall(r'(?:put_metric|_record_metric_with_condition)\(\s*f?"(?:workers\.\{[^}]+\}\.)?([^"]+)"', text):
        print("metric", name)
`
	for _, version := range []string{"2.14", testenv.Official} {
		t.Run(version, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), testenv.Torch(t, version), "-c", script).CombinedOutput()
			if err != nil || strings.Count(string(out), "\n") < 15 {
				t.Fatalf("%v\n%s", err, out)
			}
			checkTorchNames(t, string(out))
		})
	}
}

// checkTorchNames checks that the table has the methods and metrics that are listed.
func checkTorchNames(t *testing.T, list string) {
	t.Helper()
	table := torchTable(t)
	for line := range strings.Lines(list) {
		kind, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case name == "{metric_name}": // in the function that the others are arguments of
			continue
		case strings.HasPrefix(name, "{state"):
			name = "`workers.ROLE.STATE`"
		case kind == "metric":
			name = "`workers.ROLE." + name + "`"
		case name == "_monitor_workers":
			name = "`LocalElasticAgent._monitor_workers`"
		default:
			name = "`" + name + "`"
		}
		if !strings.Contains(table, name) {
			t.Errorf("the table in docs/status.md lacks torch's %s", name)
		}
	}
}
