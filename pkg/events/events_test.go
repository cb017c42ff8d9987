package events

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The layout is torch's: python's json.loads of it gives Event(**...).
func TestStatusJSON(t *testing.T) {
	code := -9
	base := Status{
		State: "FAILED", Source: SourceWorker, Time: time.Unix(1700000000, 5e8), RunID: "run", Role: "default",
		Hostname: "h", Backend: "c10d", GroupRank: 1, GroupWorldSize: 2, AgentRestarts: 3,
		TotalRunTime: 2500 * time.Millisecond, EntryPoint: "python3",
	}
	worker := base
	worker.RawError = `{"message":"m"}`
	worker.Worker = &WorkerStatus{ID: "42", LocalRank: 1, GlobalRank: 5, RoleRank: 4, RoleWorldSize: 6, ExitCode: &code}
	agent := base
	agent.Source, agent.GroupRank, agent.Duration = SourceAgent, -1, 1500*time.Microsecond
	tests := []struct {
		name   string
		event  Event
		meta   map[string]any
		detail map[string]any
	}{
		{
			"worker", worker,
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
			"agent before a rendezvous", agent,
			map[string]any{
				"run_id": "run", "global_rank": nil, "group_rank": nil, "worker_id": nil, "role": "default",
				"hostname": "h", "state": "FAILED", "total_run_time": 2.0, "rdzv_backend": "c10d",
				"raw_error": nil, "agent_restarts": 3.0, "duration_ms": 1.0,
			},
			map[string]any{"group_world_size": nil, "entry_point": "python3"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text, err := json.Marshal(tt.event)
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
			if got.Name != "torchelastic.worker.status.FAILED" || got.Timestamp != 1700000000 {
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

func TestUsageJSON(t *testing.T) {
	u := Usage{Time: time.Unix(7, 0), RunID: "run", GlobalRank: 3, LocalRank: 1, PID: 42, Processes: 2, CPUPercent: 150.5, RSSBytes: 1 << 30}
	text, err := json.Marshal(u)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"elasticrun.worker.usage","source":"WORKER","timestamp":7,"metadata":{"run_id":"run","global_rank":3,"local_rank":1,` +
		`"pid":42,"processes":2,"cpu_percent":150.5,"rss_bytes":1073741824,"read_bytes":0,"write_bytes":0}}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// brokenWriter takes one write.
type brokenWriter struct{ writes int }

var errFull = errors.New("full")

func (w *brokenWriter) Write(p []byte) (int, error) {
	if w.writes++; w.writes > 1 {
		return 0, errFull
	}
	return len(p), nil
}

func TestSinks(t *testing.T) {
	var out strings.Builder
	lines := NewLines(&out)
	var rec Recorder
	for _, sink := range []Sink{lines, &rec, Discard{}} {
		sink.Emit(Status{State: "START"})
		sink.Emit(Usage{})
	}
	if got := strings.Count(out.String(), "\n"); got != 2 || lines.Err() != nil {
		t.Errorf("%d lines, %v: %s", got, lines.Err(), out.String())
	}
	if e := rec.Events(); len(e) != 2 || e[0].Name() != "torchelastic.worker.status.START" || e[1].Name() != "elasticrun.worker.usage" {
		t.Errorf("recorded %v", e)
	}
	w := &brokenWriter{}
	lines = NewLines(w)
	for range 3 {
		lines.Emit(Usage{})
	}
	if !errors.Is(lines.Err(), errFull) || w.writes != 2 {
		t.Errorf("after a failed write: %v, %d writes", lines.Err(), w.writes)
	}
}

func TestMetrics(t *testing.T) {
	var m Metrics
	m.Put("a", 2)
	m.Put("a", 3)
	if got := m.Get("a"); got != (Series{Count: 2, Sum: 5, Last: 3}) {
		t.Errorf("a = %+v", got)
	}
	if got := m.Get("missing"); got != (Series{}) {
		t.Errorf("missing = %+v", got)
	}
	boom := errors.New("boom")
	if err := m.Prof("good", func() error { return nil }); err != nil {
		t.Error(err)
	}
	if err := m.Prof("bad", func() error { return boom }); !errors.Is(err, boom) {
		t.Error(err)
	}
	want := []string{"a", "bad.duration.ms", "bad.failure", "good.duration.ms", "good.success"}
	if diff := cmp.Diff(want, m.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}
