package events

import (
	"encoding/json"
	"time"
)

// Kind says what a [Record] tells.
type Kind string

// The kinds of records. docs/events.md says which fields each has.
const (
	KindLauncherStarted Kind = "launcher_started"
	KindWaiting         Kind = "waiting"        // the node waits for a round
	KindRound           Kind = "round"          // one was decided, with this node in it
	KindWorkerStarted   Kind = "worker_started" // one for each
	KindWorkerEnded     Kind = "worker_ended"
	KindStop            Kind = "stop"      // workers that run are being stopped
	KindFailure         Kind = "failure"   // why a worker failed, when that is known
	KindSucceeded       Kind = "succeeded" // all workers of the node have exited with 0
	KindEnd             Kind = "end"       // the launcher's last
)

// Verdicts on a round that follows another.
const (
	VerdictFirst      = "first"
	VerdictRestart    = "restart"    // after a failure, which is charged
	VerdictMembership = "membership" // nodes came or went, which is not
)

// Record is one event in a job's life as one of its nodes sees it: what --event-log writes and what the node's status follows from.
// Which fields count depends on the kind; the zero value of the others is not written.
type Record struct {
	// Seq counts the records of a launcher from 0. It is the log's: one that is missing was lost.
	Seq int64 `json:"seq"`
	// Time is when it happened, which may be before an earlier record.
	Time  time.Time `json:"time"`
	Kind  Kind      `json:"event"`
	RunID string    `json:"run_id"`
	Host  string    `json:"host"`
	// NodeRank and Round are those of the last round the node was in; nil before the first.
	NodeRank *int `json:"node_rank"`
	Round    *int `json:"round"`

	Name           string `json:"name,omitempty"` // of the script or program
	Version        string `json:"version,omitempty"`
	Backend        string `json:"rdzv_backend,omitempty"`
	LocalWorldSize int    `json:"local_world_size,omitempty"`

	Verdict     string `json:"verdict,omitempty"`
	Nodes       int    `json:"nodes,omitempty"`
	WorldSize   int    `json:"world_size,omitempty"`
	Restarts    *int   `json:"restarts,omitempty"` // charged so far
	MaxRestarts *int   `json:"max_restarts,omitempty"`

	Rank      *int   `json:"rank,omitempty"` // of the worker, in the whole job
	LocalRank *int   `json:"local_rank,omitempty"`
	PID       int    `json:"pid,omitempty"` // of the worker, or with KindLauncherStarted the launcher's
	ExitCode  *int   `json:"exit_code,omitempty"`
	Signal    string `json:"signal,omitempty"`
	Stopped   bool   `json:"stopped,omitempty"` // it was running when its group was stopped

	Cause   string `json:"cause,omitempty"` // the kind of evidence
	Summary string `json:"summary,omitempty"`
	Why     string `json:"why,omitempty"`

	Reason    string   `json:"reason,omitempty"`
	Error     string   `json:"error,omitempty"`
	RootCause *Culprit `json:"root_cause,omitempty"`
}

// Culprit is the worker that a job's end is due to.
type Culprit struct {
	Host      string `json:"host"`
	Rank      int    `json:"rank"`
	LocalRank int    `json:"local_rank"`
	PID       int    `json:"pid"`
	Cause     string `json:"cause"`
	Summary   string `json:"summary"`
}

// line is the record as one line of JSON.
func (r Record) line() ([]byte, error) {
	r.Time = r.Time.UTC().Round(time.Microsecond)
	data, err := json.Marshal(r)
	return append(data, '\n'), err
}
