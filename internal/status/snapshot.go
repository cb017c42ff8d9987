package status

import (
	"encoding/json"
	"slices"

	"github.com/elasticrun/elasticrun/pkg/report"
)

// Schema is the version of the form of a Snapshot. Fields may be added to it; none changes its meaning.
const Schema = 1

// State is what an agent is doing.
type State string

// The states.
const (
	Starting State = "starting" // the agent prepares, or a round was decided and its workers are about to be started
	Waiting  State = "waiting"  // no worker; it waits for a round: for other nodes, for a verdict, or as a spare
	Running  State = "running"  // workers run
	Stopping State = "stopping" // workers are being stopped
	Finished State = "finished" // all workers of this node have exited with 0; it waits for the other nodes
	Ended    State = "ended"    // the launcher is about to end
)

// States lists them all.
func States() []State { return []State{Starting, Waiting, Running, Stopping, Finished, Ended} }

// Ready reports whether the node does what it is there for.
func (s State) Ready() bool { return s == Running || s == Finished }

// WorkerState is what a worker is doing.
type WorkerState string

// The states of workers.
const (
	WorkerStarting  WorkerState = "starting"
	WorkerRunning   WorkerState = "running"
	WorkerSucceeded WorkerState = "succeeded" // exited with 0
	WorkerFailed    WorkerState = "failed"
	WorkerStopped   WorkerState = "stopped" // by the launcher
)

// Snapshot is what an agent knows of itself at a time.
type Snapshot struct {
	Schema  int         `json:"schema"`
	Time    report.Time `json:"time"`
	Version string      `json:"version"` // of elasticrun
	RunID   string      `json:"run_id"`
	Host    string      `json:"host"`
	Name    string      `json:"name"` // of the script or program
	Backend string      `json:"rdzv_backend"`
	PID     int         `json:"pid"` // of the agent
	Started report.Time `json:"started"`

	State State       `json:"state"`
	Since report.Time `json:"since"`         // of the state
	Why   string      `json:"why,omitempty"` // workers are being stopped, or the launcher ends

	Round          *int `json:"round"`     // null before the first
	NodeRank       *int `json:"node_rank"` // in that round
	Nodes          int  `json:"nodes"`
	WorldSize      int  `json:"world_size"`
	LocalWorldSize int  `json:"local_world_size"`
	// Restarts are the charged ones of the job, Rounds what the node was in, MembershipChanges those of them that were not begun by a failure, the
	// first apart; Failures are workers of this node that failed.
	Restarts          int      `json:"restarts"`
	MaxRestarts       int      `json:"max_restarts"`
	Rounds            int      `json:"rounds"`
	MembershipChanges int      `json:"membership_changes"`
	Failures          int      `json:"failures"`
	LastFailure       *Failure `json:"last_failure"`

	Workers []Worker `json:"workers"` // by local rank
	// WorkersLeftOut is how many workers are missing in Workers, because there are too many for where the Snapshot was written to.
	WorkersLeftOut int   `json:"workers_left_out,omitempty"`
	GPUs           []GPU `json:"gpus"` // of the machine; empty where there is no nvidia-smi that answers
}

// Failure is a worker of this node that failed.
type Failure struct {
	Time    report.Time `json:"time"`
	Round   int         `json:"round"`
	Rank    int         `json:"rank"`
	Cause   string      `json:"cause"`
	Summary string      `json:"summary"`
}

// Worker is one worker of the current round.
type Worker struct {
	Rank      int         `json:"rank"`
	LocalRank int         `json:"local_rank"`
	PID       int         `json:"pid"` // 0 before it was started
	State     WorkerState `json:"state"`
	Since     report.Time `json:"since"`
	ExitCode  *int        `json:"exit_code"` // as shells count it; null while it runs
	Signal    string      `json:"signal,omitempty"`
	// Usage is of the worker and all of its descendants; null while it is not known.
	Usage *Usage `json:"usage"`
	// LastLine is what it wrote to stderr last, as far as the launcher sees it.
	LastLine string `json:"last_line,omitempty"`
}

// Usage is what a worker and its descendants use.
type Usage struct {
	Processes  int      `json:"processes"`
	CPUPercent *float64 `json:"cpu_percent"` // 100 is one core, since somebody looked before; null while that is not known
	RSSBytes   uint64   `json:"rss_bytes"`
}

// GPU is a GPU of the machine. What the driver does not tell is null.
type GPU struct {
	Index              int    `json:"index"`
	UtilizationPercent *int   `json:"utilization_percent"`
	MemoryUsedBytes    *int64 `json:"memory_used_bytes"`
	MemoryTotalBytes   *int64 `json:"memory_total_bytes"`
}

// Brief is s as JSON in limit bytes at most: without as many of the last workers as do not fit.
func (s Snapshot) Brief(limit int) []byte {
	all := s.Workers
	for keep := len(all); ; keep /= 2 {
		s.Workers, s.WorkersLeftOut = all[:keep], len(all)-keep
		data, err := json.Marshal(s)
		if err != nil || keep == 0 || len(data) <= limit {
			return data
		}
	}
}

// clone returns a copy whose lists may be changed.
func (s Snapshot) clone() Snapshot {
	s.Workers, s.GPUs = slices.Clone(s.Workers), slices.Clone(s.GPUs)
	return s
}
