package events

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// TorchLines prints the events that torch emits, and samples of usage, each as one line of JSON. It is torchrun's
// "console" event handler.
type TorchLines struct {
	cancel   context.CancelFunc // ends the search for the host name
	searched chan struct{}      // closed when the search has ended; nil without one

	mu   sync.Mutex
	w    io.Writer
	err  error
	host string  // replaces the events' host; empty: not known
	hold bool    // the search for the host name runs
	held []Event // wait for the end of the search
}

// NewTorchLines returns a sink that writes to w, with one Write for each event.
func NewTorchLines(w io.Writer) *TorchLines { return &TorchLines{w: w} }

// QualifyHost makes events carry the fully qualified name of this machine, as in torch, if it has one. host is its
// plain name. The search takes at most 1 s, and ends with ctx. It delays lines, but no caller of Emit. Call it before
// the first Emit, and Close at the end.
func (l *TorchLines) QualifyHost(ctx context.Context, host string) {
	l.qualify(ctx, newResolver(new(net.Dialer).DialContext), host)
}

func (l *TorchLines) qualify(ctx context.Context, r resolver, host string) {
	ctx, cancel := context.WithTimeout(ctx, hostTimeout)
	l.cancel, l.searched, l.hold = cancel, make(chan struct{}), true
	go func() {
		defer close(l.searched)
		defer cancel()
		name := qualifiedHost(ctx, r, host)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.host, l.hold = name, false
		for _, e := range l.held {
			l.write(e)
		}
		l.held = nil
	}()
}

// Emit writes e if torch has such an event. After the first error it writes nothing more.
func (l *TorchLines) Emit(e Event) {
	if e.Kind != KindUsage && torchState(e) == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold {
		l.held = append(l.held, e)
		return
	}
	l.write(e)
}

// write writes e. The caller holds mu.
func (l *TorchLines) write(e Event) {
	if l.err != nil {
		return
	}
	e.Host = cmp.Or(l.host, e.Host)
	line, err := json.Marshal(torchView(e))
	if err == nil {
		_, err = l.w.Write(append(line, '\n'))
	}
	l.err = err
}

// Close ends the search for the host name, writes the lines that wait for it, and returns the error that ended the
// writing, if any.
func (l *TorchLines) Close() error {
	if l.searched != nil {
		l.cancel()
		<-l.searched
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Usage is a sample of what a worker and its descendants use. The event is "elasticrun.worker.usage", which torch does
// not have.
type Usage struct {
	RunID      string  `json:"run_id"`
	GlobalRank int     `json:"global_rank"`
	LocalRank  int     `json:"local_rank"`
	PID        int     `json:"pid"`
	Processes  int     `json:"processes"`   // in the worker's process tree
	CPUPercent float64 `json:"cpu_percent"` // since the previous sample; 100 is one core
	RSSBytes   uint64  `json:"rss_bytes"`
	ReadBytes  uint64  `json:"read_bytes"`
	WriteBytes uint64  `json:"write_bytes"`
}

// torchEvent is the Event of torch 2.14 (torch/distributed/elastic/events/api.py), in torch's order of fields.
type torchEvent struct {
	Name      string `json:"name"`
	Source    string `json:"source"`
	Timestamp int64  `json:"timestamp"` // Unix seconds
	Metadata  any    `json:"metadata"`
}

// torchMetadata is what get_event_succeeded and _construct_event of torch 2.14 write
// (torch/distributed/elastic/agent/server/api.py).
type torchMetadata struct {
	RunID         string  `json:"run_id"`
	GlobalRank    *int    `json:"global_rank"`
	GroupRank     *int    `json:"group_rank"`
	WorkerID      *string `json:"worker_id"`
	Role          string  `json:"role"`
	Hostname      string  `json:"hostname"`
	State         string  `json:"state"`
	TotalRunTime  int64   `json:"total_run_time"` // whole seconds
	Backend       string  `json:"rdzv_backend"`
	RawError      *string `json:"raw_error"`
	Detail        string  `json:"metadata"` // torchDetail as JSON text
	AgentRestarts int     `json:"agent_restarts"`
	DurationMS    *int64  `json:"duration_ms"`
}

// torchDetail is the JSON text inside the metadata. torch writes three of its numbers as lists of one.
type torchDetail struct {
	GroupWorldSize *int   `json:"group_world_size"`
	EntryPoint     string `json:"entry_point"`
	LocalRank      []int  `json:"local_rank,omitempty"`
	RoleRank       []int  `json:"role_rank,omitempty"`
	RoleWorldSize  []int  `json:"role_world_size,omitempty"`
	ExitCode       *int   `json:"exit_code,omitempty"`
	WorkerPID      string `json:"worker_pid,omitempty"`
}

// torchState returns the state in torch's name for e; empty if torch has no such event.
func torchState(e Event) string {
	switch {
	case e.Kind == KindWorkerStarted:
		return "START"
	case e.Kind == KindStep && e.Step == StepRendezvous && e.RawError == "":
		return "RENDEZVOUS"
	case e.Kind == KindRound:
		return "ASSIGN_WORKER_RANKS"
	case e.Kind == KindResult:
		return e.State
	case e.Kind == KindRun && e.RawError != "":
		return "FAILED"
	case e.Kind == KindRun:
		return "SUCCEEDED" // the run ended without an error, even if the job failed
	}
	return ""
}

// torchView returns e in torch's layout. torch must have such an event, or it must be a sample of usage.
func torchView(e Event) any {
	if e.Kind == KindUsage {
		return torchEvent{Name: "elasticrun.worker.usage", Source: "WORKER", Timestamp: e.Time.Unix(), Metadata: e.Usage}
	}
	state, g := torchState(e), e.Group
	detail := torchDetail{EntryPoint: g.EntryPoint}
	meta := torchMetadata{
		RunID: e.RunID, Role: g.Role, Hostname: e.Host, State: state,
		TotalRunTime: int64(g.Uptime / time.Second), Backend: g.Backend, AgentRestarts: g.Restarts,
	}
	if g.Rank >= 0 {
		meta.GroupRank, detail.GroupWorldSize = &g.Rank, &g.WorldSize
	}
	if e.RawError != "" {
		meta.RawError = &e.RawError
	}
	if e.Kind == KindStep || e.Kind == KindRound {
		meta.DurationMS = new(max(1, e.Duration.Milliseconds())) // torch leaves out a duration of 0
	}
	source := "AGENT"
	if e.Kind == KindWorkerStarted || e.Kind == KindResult {
		id := strconv.Itoa(e.PID)
		source, meta.GlobalRank, meta.WorkerID = "WORKER", e.Rank, &id
		detail.LocalRank = []int{*e.LocalRank}
		detail.RoleRank = []int{e.RoleRank}
		detail.RoleWorldSize = []int{e.RoleWorldSize}
		detail.ExitCode, detail.WorkerPID = e.PythonCode, id
	}
	text, _ := json.Marshal(detail) //nolint:errchkjson // numbers and texts
	meta.Detail = string(text)
	return torchEvent{
		Name: "torchelastic.worker.status." + state, Source: source, Timestamp: e.Time.Unix(),
		Metadata: meta,
	}
}
