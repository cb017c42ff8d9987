package events

import (
	"encoding/json"
	"time"

	"github.com/elasticrun/elasticrun/pkg/goodput"
)

// Kind says what an [Event] is about.
type Kind string

// The kinds that the event log has. docs/events.md lists the fields of each.
const (
	KindLauncherStarted Kind = "launcher_started"
	KindWaiting         Kind = "waiting"        // the node waits for a round
	KindRound           Kind = "round"          // a round that includes this node was decided
	KindWorkerStarted   Kind = "worker_started" // one event for each worker
	KindWorkerEnded     Kind = "worker_ended"
	KindFirstStep       Kind = "first_step" // a worker of the node has done the round's first step
	KindPreempted       Kind = "preempted"  // the job is preempted, so the workers of the node must save
	KindStop            Kind = "stop"       // the agent begins to stop running workers
	KindFailure         Kind = "failure"    // the cause of a worker's failure is known
	KindHang            Kind = "hang"       // no worker of the job makes progress
	KindHangOver        Kind = "hang_over"  // a worker of this node makes progress again
	KindSucceeded       Kind = "succeeded"  // all workers of the node have exited with 0
	KindEnd             Kind = "end"        // the launcher's last event
)

// The kinds that only torch's events and metrics have.
const (
	KindStep   Kind = "step"   // a step of the agent has ended, after Duration; RawError is its error
	KindState  Kind = "state"  // the State of the worker group, after a round
	KindResult Kind = "result" // the State in which a worker of the last round has ended; one event for each worker
	KindRun    Kind = "run"    // the run has ended in State, or with RawError, after Duration
	KindUsage  Kind = "usage"  // a sample of a worker's Usage
)

// Logged reports whether the event log has events of this kind.
func (k Kind) Logged() bool {
	switch k {
	case KindStep, KindState, KindResult, KindRun, KindUsage:
		return false
	}
	return true
}

// The steps of an agent are methods of torch's agent: [Metrics] counts and times them.
const (
	StepRun        = "run"
	StepInitialize = "initialize_workers"
	StepRendezvous = "rendezvous"
	StepAssign     = "assign_worker_ranks"
	StepStart      = "start_workers"
	StepStop       = "stop_workers"
	StepRestart    = "restart_workers"
)

// Steps returns all steps.
func Steps() []string {
	return []string{StepRun, StepInitialize, StepRendezvous, StepAssign, StepStart, StepStop, StepRestart}
}

// The verdicts on a new round.
const (
	VerdictFirst      = "first"
	VerdictRestart    = "restart"    // it follows a failure, and is charged
	VerdictMembership = "membership" // it follows the arrival or departure of nodes, and is not charged
)

// Event is one event in the life of a job, as one of its nodes sees it. Which fields count depends on the kind; the
// zero value of the others is not written.
type Event struct {
	// Seq counts the events of a launcher in the event log from 0. A gap is an event that was lost.
	Seq int64 `json:"seq"`
	// Time is when the event happened, which may be before the time of an earlier event.
	Time  time.Time `json:"time"`
	Kind  Kind      `json:"event"`
	RunID string    `json:"run_id"`
	Host  string    `json:"host"`
	// NodeRank and Round belong to the last round that the node was in; nil before the first.
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
	// LostNodes is how many nodes of the previous round were lost. SameFailures is how many times in a row the failure
	// that ended that round has happened.
	LostNodes    int `json:"lost_nodes,omitempty"`
	SameFailures int `json:"same_failures,omitempty"`
	// TrainingStep is the number of the step of KindFirstStep.
	TrainingStep *int64 `json:"step,omitempty"`
	// Used is how all workers of the job have used their time: with KindRound, before that round; with KindEnd, in all.
	Used *goodput.Goodput `json:"goodput,omitempty"`
	// OthersUnknown says that this node has succeeded and ended before it knew how the other nodes end.
	OthersUnknown bool `json:"others_unknown,omitempty"`

	Rank      *int   `json:"rank,omitempty"` // of the worker, among all workers of the job
	LocalRank *int   `json:"local_rank,omitempty"`
	PID       int    `json:"pid,omitempty"` // of the worker; with KindLauncherStarted, of the launcher
	ExitCode  *int   `json:"exit_code,omitempty"`
	Signal    string `json:"signal,omitempty"`
	Stopped   bool   `json:"stopped,omitempty"` // the worker was running when the agent stopped its group

	Cause   string `json:"cause,omitempty"` // the kind of the strongest evidence
	Summary string `json:"summary,omitempty"`
	Why     string `json:"why,omitempty"`
	Ranks   []int  `json:"ranks,omitempty"` // the workers that are the likeliest reason for a hang

	Reason    string     `json:"reason,omitempty"`
	Error     string     `json:"error,omitempty"`
	RootCause *RootCause `json:"root_cause,omitempty"`

	// The event log leaves out the fields below.

	Group    Group         `json:"-"` // the emitting agent's worker group
	Step     string        `json:"-"` // one of StepInitialize and the like
	State    string        `json:"-"` // of the group or of the worker: SUCCEEDED, FAILED and so on
	Duration time.Duration `json:"-"`
	RawError string        `json:"-"` // the worker's error file, or the error of the step or run; empty for none
	// PythonCode is the worker's exit code as Python counts it, -n for signal n; nil for a worker that did not fail.
	PythonCode              *int   `json:"-"`
	RoleRank, RoleWorldSize int    `json:"-"` // of the worker
	Usage                   *Usage `json:"-"`
}

// Group is what torch's events and metrics say about the worker group of the agent that emits an event.
type Group struct {
	Role       string
	EntryPoint string // base name of the command
	Backend    string // of the rendezvous
	Rank       int    // of the group; -1 before the first rendezvous
	WorldSize  int    // number of groups
	Restarts   int    // charged so far
	Budget     int    // the most restarts that are charged
	Uptime     time.Duration
}

// RootCause is the worker that ended a job.
type RootCause struct {
	Host      string `json:"host"`
	Rank      int    `json:"rank"`
	LocalRank int    `json:"local_rank"`
	PID       int    `json:"pid"`
	Cause     string `json:"cause"`
	Summary   string `json:"summary"`
}

// line returns the event as one line of the event log.
func (e Event) line() ([]byte, error) {
	e.Time = e.Time.UTC().Round(time.Microsecond)
	data, err := json.Marshal(e)
	return append(data, '\n'), err
}

// Sink consumes events.
type Sink interface {
	Emit(Event)
}

// Sinks passes each event to all its members, in order. A nil Sinks discards events.
type Sinks []Sink

// Emit passes e to each sink.
func (s Sinks) Emit(e Event) {
	for _, sink := range s {
		sink.Emit(e)
	}
}
