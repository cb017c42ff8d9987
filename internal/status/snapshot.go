package status

import (
	"encoding/json"
	"slices"

	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/goodput"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// Schema is the version of the JSON form. Fields may be added; none changes its meaning.
const Schema = 1

// State is what an agent is doing.
type State string

// The states.
const (
	Starting State = "starting" // the agent prepares, or is about to start the workers of a round
	Waiting  State = "waiting"  // no worker runs; it waits for other nodes, for a decision, or as a spare
	Running  State = "running"  // workers run
	// Suspended means that all workers that run are stopped by a signal, as after Ctrl-Z.
	Suspended State = "suspended"
	Saving    State = "saving"   // workers are to save and exit, because the job is preempted
	Stopping  State = "stopping" // workers are being stopped
	Finished  State = "finished" // all workers of this node exited with 0; it waits for the other nodes
	Ended     State = "ended"    // the launcher is about to end
)

// States returns all states.
func States() []State {
	return []State{Starting, Waiting, Running, Suspended, Saving, Stopping, Finished, Ended}
}

// Ready reports whether the node runs its workers or has finished them.
func (s State) Ready() bool { return s == Running || s == Finished }

// WorkerState is what a worker is doing.
type WorkerState string

// The states of workers.
const (
	WorkerStarting WorkerState = "starting"
	WorkerRunning  WorkerState = "running"
	// WorkerSuspended means that a worker which runs is stopped by a signal, as after Ctrl-Z.
	WorkerSuspended WorkerState = "suspended"
	WorkerSucceeded WorkerState = "succeeded" // exited with 0
	WorkerFailed    WorkerState = "failed"
	WorkerStopped   WorkerState = "stopped" // by the launcher
)

// Snapshot is what an agent knows about itself at one time.
type Snapshot struct {
	Schema  int         `json:"schema"`
	Time    report.Time `json:"time"`
	Version string      `json:"version"` // of elasticrun
	RunID   string      `json:"run_id"`
	Host    string      `json:"host"`
	Name    string      `json:"name"` // of the script or program
	Role    string      `json:"role"` // of the workers
	Backend string      `json:"rdzv_backend"`
	PID     int         `json:"pid"` // of the agent
	Started report.Time `json:"started"`

	State State       `json:"state"`
	Since report.Time `json:"since"` // of the state
	// Why says what the node waits for, why workers are stopped, or why the launcher ends. WhyTime is when Why was set: a
	// node that waits may name a remaining time. It is null in other states than Waiting.
	Why     string       `json:"why,omitempty"`
	WhyTime *report.Time `json:"why_time,omitempty"`

	Round          *int `json:"round"`     // null before the first
	NodeRank       *int `json:"node_rank"` // in that round
	Nodes          int  `json:"nodes"`
	WorldSize      int  `json:"world_size"`
	LocalWorldSize int  `json:"local_world_size"`
	// Restarts counts the restarts charged to the job. Rounds counts the rounds of this node, MembershipChanges those
	// of them that no failure caused, without the first. Failures counts the workers of this node that failed.
	Restarts          int      `json:"restarts"`
	MaxRestarts       int      `json:"max_restarts"`
	Rounds            int      `json:"rounds"`
	MembershipChanges int      `json:"membership_changes"`
	Failures          int      `json:"failures"`
	LastFailure       *Failure `json:"last_failure"`

	// Goodput is how all workers of the job have used their time, as far as this node sees it; null before the first
	// round.
	Goodput *goodput.Goodput `json:"goodput,omitempty"`

	// Hang is the hang that the job is in, as far as this node knows; null if its workers make progress.
	Hang *Hang `json:"hang,omitempty"`

	// Store says who keeps the job's coordination store, as this agent has learned last; null if the agents do not keep it
	// together.
	Store *Store `json:"store,omitempty"`

	Workers []Worker `json:"workers"` // by local rank
	// WorkersLeftOut is the number of workers missing from Workers because of the size limit of Brief.
	WorkersLeftOut int   `json:"workers_left_out,omitempty"`
	GPUs           []GPU `json:"gpus"` // of the machine; empty without a working nvidia-smi

	Agent map[string]events.Series `json:"-"` // torch's metrics of the agent: events.Metrics.All
}

// Failure is a worker of this node that failed.
type Failure struct {
	Time    report.Time `json:"time"`
	Round   int         `json:"round"`
	Rank    int         `json:"rank"`
	Cause   string      `json:"cause"`
	Summary string      `json:"summary"`
}

// Hang says that no worker of the job makes progress.
type Hang struct {
	Time report.Time `json:"time"` // when it was found
	// Ranks are the workers that are the likeliest reason; empty if that is not known.
	Ranks   []int  `json:"ranks,omitempty"`
	Summary string `json:"summary"`
}

// Worker is one worker of the current round.
type Worker struct {
	Rank      int         `json:"rank"` // -1 before it was started
	LocalRank int         `json:"local_rank"`
	PID       int         `json:"pid"` // 0 before it was started
	State     WorkerState `json:"state"`
	Since     report.Time `json:"since"`
	ExitCode  *int        `json:"exit_code"` // as in a shell; null while it runs
	Signal    string      `json:"signal,omitempty"`
	// Usage is that of the worker and all of its descendants; null if unknown.
	Usage *Usage `json:"usage"`
	// Quiet is the time since the worker's last sign of life in seconds, as of the last sample, which is up to 15 s old;
	// null if nobody looks for signs. Sign is that sign, as in [stacks.Life]; empty if the worker has shown none. Step is
	// the last step that the worker has reported; null if none.
	Quiet *float64 `json:"quiet,omitempty"`
	Sign  string   `json:"sign,omitempty"`
	Step  *int64   `json:"step,omitempty"`
	// LastLine is the last line that it wrote, to stdout or stderr.
	LastLine string `json:"last_line,omitempty"`
}

// alive reports whether the worker was started and has not ended.
func (w Worker) alive() bool { return w.State == WorkerRunning || w.State == WorkerSuspended }

// Usage is the resource usage of a worker and its descendants.
type Usage struct {
	Processes  int      `json:"processes"`
	CPUPercent *float64 `json:"cpu_percent"` // 100 is one core; since the previous measurement; null if unknown
	RSSBytes   uint64   `json:"rss_bytes"`
}

// GPU is a GPU of the machine. A value that the driver does not report is null.
type GPU struct {
	Index              int    `json:"index"`
	UtilizationPercent *int   `json:"utilization_percent"`
	MemoryUsedBytes    *int64 `json:"memory_used_bytes"`
	MemoryTotalBytes   *int64 `json:"memory_total_bytes"`
}

// Brief returns s as JSON of at most limit bytes. It leaves out the last workers if they do not fit, and exceeds the
// limit only if s does not even fit without workers. It omits Store, because every reader of the store knows it.
func (s Snapshot) Brief(limit int) []byte {
	all := s.Workers
	s.Store = nil
	for keep := len(all); ; keep /= 2 {
		s.Workers, s.WorkersLeftOut = all[:keep], len(all)-keep
		data, err := json.Marshal(s)
		if err != nil || keep == 0 || len(data) <= limit {
			return data
		}
	}
}

// clone returns a copy with its own Workers and GPUs.
func (s Snapshot) clone() Snapshot {
	s.Workers, s.GPUs = slices.Clone(s.Workers), slices.Clone(s.GPUs)
	return s
}
