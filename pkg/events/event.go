package events

import (
	"encoding/json"
	"time"
)

// Source says who an event is about.
type Source string

// Sources of seed 002.
const (
	SourceAgent  Source = "AGENT"
	SourceWorker Source = "WORKER"
)

// statusPrefix starts the name of every status event; the state follows.
const statusPrefix = "torchelastic.worker.status."

// Status is one event `torchelastic.worker.status.<STATE>`. It is written as the
// JSON object that torch writes: name, source, timestamp (Unix seconds) and a
// metadata object whose own "metadata" is a JSON text.
type Status struct {
	State  string // START, SUCCEEDED, FAILED, TERMINATED, RENDEZVOUS, ASSIGN_WORKER_RANKS
	Source Source
	Time   time.Time

	RunID         string
	Role          string
	Hostname      string
	Backend       string        // of the rendezvous
	GroupRank     int           // -1 before the first rendezvous
	AgentRestarts int           // charged restarts so far
	TotalRunTime  time.Duration // of the agent, written in whole seconds
	Duration      time.Duration // of the step, where State is one; written in milliseconds
	RawError      string        // error file of the worker or error of the agent; empty for none

	GroupWorldSize int
	EntryPoint     string // base name of the command

	Worker *WorkerStatus // nil where Source is AGENT
}

// WorkerStatus is the part of a [Status] that concerns one worker.
type WorkerStatus struct {
	ID            string // the worker's pid
	LocalRank     int
	GlobalRank    int
	RoleRank      int
	RoleWorldSize int
	// ExitCode is the exit code, negative for a signal; nil while it runs.
	ExitCode *int
}

// Name returns the event's full name.
func (s Status) Name() string { return statusPrefix + s.State }

// String returns the event as a short line for people.
func (s Status) String() string {
	b, err := json.Marshal(s)
	if err != nil {
		return s.Name()
	}
	return string(b)
}

// wireEvent is torch's Event; field order is torch's too.
type wireEvent struct {
	Name      string       `json:"name"`
	Source    Source       `json:"source"`
	Timestamp int64        `json:"timestamp"`
	Metadata  wireMetadata `json:"metadata"`
}

type wireMetadata struct {
	RunID         string  `json:"run_id"`
	GlobalRank    *int    `json:"global_rank"`
	GroupRank     *int    `json:"group_rank"`
	WorkerID      *string `json:"worker_id"`
	Role          string  `json:"role"`
	Hostname      string  `json:"hostname"`
	State         string  `json:"state"`
	TotalRunTime  int64   `json:"total_run_time"`
	Backend       string  `json:"rdzv_backend"`
	RawError      *string `json:"raw_error"`
	Detail        string  `json:"metadata"`
	AgentRestarts int     `json:"agent_restarts"`
	DurationMS    *int64  `json:"duration_ms"`
}

// wireDetail is the JSON text inside the metadata. torch writes three of its
// numbers as lists of one.
type wireDetail struct {
	GroupWorldSize *int   `json:"group_world_size"`
	EntryPoint     string `json:"entry_point"`
	LocalRank      []int  `json:"local_rank,omitempty"`
	RoleRank       []int  `json:"role_rank,omitempty"`
	RoleWorldSize  []int  `json:"role_world_size,omitempty"`
	ExitCode       *int   `json:"exit_code,omitempty"`
	WorkerPID      string `json:"worker_pid,omitempty"`
}

// MarshalJSON writes the event in torch's layout.
func (s Status) MarshalJSON() ([]byte, error) {
	detail := wireDetail{EntryPoint: s.EntryPoint}
	meta := wireMetadata{
		RunID: s.RunID, Role: s.Role, Hostname: s.Hostname, State: s.State,
		TotalRunTime: int64(s.TotalRunTime / time.Second), Backend: s.Backend, AgentRestarts: s.AgentRestarts,
	}
	if s.GroupRank >= 0 {
		meta.GroupRank, detail.GroupWorldSize = &s.GroupRank, &s.GroupWorldSize
	}
	if s.RawError != "" {
		meta.RawError = &s.RawError
	}
	if s.Duration > 0 {
		ms := s.Duration.Milliseconds()
		meta.DurationMS = &ms
	}
	if w := s.Worker; w != nil {
		meta.GlobalRank, meta.WorkerID = &w.GlobalRank, &w.ID
		detail.LocalRank = []int{w.LocalRank}
		detail.RoleRank = []int{w.RoleRank}
		detail.RoleWorldSize = []int{w.RoleWorldSize}
		detail.ExitCode, detail.WorkerPID = w.ExitCode, w.ID
	}
	text, err := json.Marshal(detail)
	if err != nil {
		return nil, err
	}
	meta.Detail = string(text)
	return json.Marshal(wireEvent{Name: s.Name(), Source: s.Source, Timestamp: s.Time.Unix(), Metadata: meta})
}

// Usage is one sample of what a worker and its descendants use; the event is
// `elasticrun.worker.usage`, which torch does not have.
type Usage struct {
	Time       time.Time `json:"-"`
	RunID      string    `json:"run_id"`
	GlobalRank int       `json:"global_rank"`
	LocalRank  int       `json:"local_rank"`
	PID        int       `json:"pid"`
	Processes  int       `json:"processes"`   // in the worker's tree
	CPUPercent float64   `json:"cpu_percent"` // 100 is one core, since the sample before
	RSSBytes   uint64    `json:"rss_bytes"`
	ReadBytes  uint64    `json:"read_bytes"`
	WriteBytes uint64    `json:"write_bytes"`
}

// Name returns the event's full name.
func (Usage) Name() string { return "elasticrun.worker.usage" }

// MarshalJSON writes the event in the layout that all events share.
func (u Usage) MarshalJSON() ([]byte, error) {
	type fields Usage // without this method
	return json.Marshal(struct {
		Name      string `json:"name"`
		Source    Source `json:"source"`
		Timestamp int64  `json:"timestamp"`
		Metadata  fields `json:"metadata"`
	}{u.Name(), SourceWorker, u.Time.Unix(), fields(u)})
}
