package events

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestTorchStatus checks the layout: json.loads of Python must give the arguments of torch's Event.
func TestTorchStatus(t *testing.T) {
	base := Event{
		Time: time.Unix(1700000000, 5e8), RunID: "run", Host: "h",
		Group: Group{
			Role: "default", EntryPoint: "python3", Backend: "c10d", Rank: 1, WorldSize: 2, Restarts: 3,
			Uptime: 2500 * time.Millisecond,
		},
	}
	worker, step := base, base
	worker.Kind, worker.State, worker.RawError, worker.PythonCode = KindResult, "FAILED", `{"message":"m"}`, new(-9)
	worker.PID, worker.LocalRank, worker.Rank, worker.RoleRank, worker.RoleWorldSize = 42, new(1), new(5), 4, 6
	step.Kind, step.Step, step.Group.Rank, step.Duration = KindStep, StepRendezvous, -1, 1500*time.Microsecond
	tests := []struct {
		name   string
		event  Event
		meta   map[string]any
		detail map[string]any
	}{
		{
			"FAILED", worker,
			map[string]any{
				"run_id": "run", "global_rank": 5.0, "group_rank": 1.0, "worker_id": "42", "role": "default",
				"hostname": "h", "state": "FAILED", "total_run_time": 2.0, "rdzv_backend": "c10d",
				"raw_error": `{"message":"m"}`, "agent_restarts": 3.0, "duration_ms": nil,
			},
			map[string]any{
				"group_world_size": 2.0, "entry_point": "python3", "local_rank": []any{1.0}, "role_rank": []any{4.0},
				"role_world_size": []any{6.0}, "exit_code": -9.0, "worker_pid": "42",
			},
		},
		{
			"RENDEZVOUS", step,
			map[string]any{
				"run_id": "run", "global_rank": nil, "group_rank": nil, "worker_id": nil, "role": "default",
				"hostname": "h", "state": "RENDEZVOUS", "total_run_time": 2.0, "rdzv_backend": "c10d",
				"raw_error": nil, "agent_restarts": 3.0, "duration_ms": 1.0,
			},
			map[string]any{"group_world_size": nil, "entry_point": "python3"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text, err := json.Marshal(torchView(tt.event))
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Name, Source string
				Timestamp    int64
				Metadata     map[string]any
			}
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatal(err)
			}
			if got.Name != "torchelastic.worker.status."+tt.name || got.Timestamp != 1700000000 {
				t.Errorf("event %s", text)
			}
			var detail map[string]any
			if err := json.Unmarshal([]byte(got.Metadata["metadata"].(string)), &detail); err != nil {
				t.Fatal(err)
			}
			delete(got.Metadata, "metadata")
			if diff := cmp.Diff(tt.meta, got.Metadata); diff != "" {
				t.Errorf("metadata (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.detail, detail); diff != "" {
				t.Errorf("detail (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUsageLine(t *testing.T) {
	var out strings.Builder
	lines := NewTorchLines(&out)
	lines.Emit(Event{Kind: KindUsage, Time: time.Unix(7, 0), Usage: &Usage{
		RunID: "run", GlobalRank: 3, LocalRank: 1, PID: 42, Processes: 2, CPUPercent: 150.5, RSSBytes: 1 << 30,
	}})
	want := `{"name":"elasticrun.worker.usage","source":"WORKER","timestamp":7,"metadata":{"run_id":"run","global_rank":3,"local_rank":1,` +
		`"pid":42,"processes":2,"cpu_percent":150.5,"rss_bytes":1073741824,"read_bytes":0,"write_bytes":0}}` + "\n"
	if got := out.String(); got != want || lines.Close() != nil {
		t.Errorf("%v\ngot  %s\nwant %s", lines.Close(), got, want)
	}
}

// fullWriter takes one write.
type fullWriter struct{ writes int }

var errFull = errors.New("full")

func (w *fullWriter) Write(p []byte) (int, error) {
	if w.writes++; w.writes > 1 {
		return 0, errFull
	}
	return len(p), nil
}

func TestTorchLines(t *testing.T) {
	var out strings.Builder
	lines := NewTorchLines(&out)
	for _, e := range []Event{
		{Kind: KindWaiting},
		{Kind: KindRound},
		{Kind: KindStep, Step: StepStart},
		{Kind: KindStep, Step: StepRendezvous, RawError: "lost"},
		{Kind: KindState, State: "HEALTHY"},
		{Kind: KindRun, State: "FAILED"},
		{Kind: KindRun, State: "STOPPED", RawError: "lost"},
	} {
		Sinks{lines}.Emit(e)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, `{"name":"torchelastic.worker.status.`), `"`)
		got = append(got, name)
	}
	if diff := cmp.Diff([]string{"ASSIGN_WORKER_RANKS", "SUCCEEDED", "FAILED"}, got); diff != "" || lines.Close() != nil {
		t.Errorf("%v, events (-want +got):\n%s", lines.Close(), diff)
	}
	w := &fullWriter{}
	lines = NewTorchLines(w)
	for range 3 {
		lines.Emit(Event{Kind: KindRound})
	}
	if !errors.Is(lines.Close(), errFull) || w.writes != 2 {
		t.Errorf("after a failed write: %v, %d writes", lines.Close(), w.writes)
	}
}
