package rdzv

import (
	"fmt"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/goodput"
)

// Failure is what a node reports to the other nodes about one of its workers.
type Failure struct {
	failure.Failure
	// Grade orders failures by the evidence that they are the root cause: the lowest grade is the likeliest cause.
	Grade int `json:"grade"`
	// Absent says that the worker was alive and silent, or had long exited with 0. If the likeliest cause has only
	// waited for a peer, the root cause is a worker that was absent.
	Absent bool `json:"absent,omitempty"`
	// Age is how long ago the worker failed. It is sent instead of a time because clocks differ.
	Age time.Duration `json:"age"`
	// Alike says that other workers of the node have failed in the same way.
	Alike bool `json:"alike,omitempty"`
	// OnlyStopped says that no worker of the node has failed by itself. A worker that was stopped may have caused a
	// failure elsewhere, but its own exit is no failure.
	OnlyStopped bool `json:"only_stopped,omitempty"`
}

// MaxFailureText is the longest Text of a Failure that is sent to other nodes, in bytes.
const MaxFailureText = 8 << 10

// MaxOthers is the most failures beside the root cause that an [Outcome] has.
const MaxOthers = 16

// Ending says how a run id ended.
type Ending string

// The ways in which a run id ends.
const (
	EndSucceeded Ending = "succeeded" // every worker of every node exited with 0
	EndFailed    Ending = "failed"    // workers failed and no restart was left
	EndTimeout   Ending = "timeout"   // too few nodes for the join timeout
	EndClosed    Ending = "closed"    // closed by SetClosed or elastic.Close, or because its store has no room for it
	// EndNodeLost says that a node was lost or has left after others had left the exit barrier with success, so that the
	// round could not be run again.
	EndNodeLost Ending = "node_lost"
	// EndPreempted says that a preemption has ended the job, and not all of its workers had finished.
	EndPreempted Ending = "preempted"
)

// Rule is a rule by which no restart follows a failure.
type Rule string

// The rules. Reports contain them verbatim.
const (
	RuleStop        Rule = "stop_requested" // a worker has said so
	RuleFinalCode   Rule = "final_code"     // the root cause has exited with such a code
	RuleSameFailure Rule = "same_failure"   // the same failure has happened too often in a row
	RuleNoProgress  Rule = "no_progress"    // too many restarts in a row have brought no progress
)

// Outcome is how a job ended, the same on every node.
type Outcome struct {
	Ending Ending `json:"ending"`
	// Cause is the root cause of EndFailed, or nil if it is unknown.
	Cause *Failure `json:"cause,omitempty"`
	// Others are the likeliest causes on the other nodes, likeliest first and without their Text. There are at most
	// MaxOthers.
	Others []Failure `json:"others,omitempty"`
	// Restarts counts the charged restarts.
	Restarts int `json:"restarts"`
	// Rule is the rule of the job's policy that has ended it; empty if none has.
	Rule Rule `json:"rule,omitempty"`
	// Text is one line for people. It may be empty.
	Text string `json:"text,omitempty"`
	// ClosedBy says for people who has closed the run, such as user@host. It is empty if that is not known, and with any
	// Ending but EndClosed.
	ClosedBy string `json:"closed_by,omitempty"`
	// Used is how the workers of the job have used their time; nil if that is not known.
	Used *goodput.Goodput `json:"used,omitempty"`
}

// Late describes a run that had finished before the agent joined.
type Late struct {
	// Ago is how long ago the run finished, as far as clocks agree.
	Ago time.Duration `json:"ago"`
	// Hosts are the first hosts that the run used. HostCount counts all of them.
	Hosts     []string `json:"hosts,omitempty"`
	HostCount int      `json:"host_count,omitempty"`
}

// Describe says how, when and where the run finished, such as "succeeded 3s ago on node1, node2 and 2 more".
func (l Late) Describe(e Ending) string {
	text := fmt.Sprintf("%s %v ago", e, l.Ago.Round(time.Second))
	switch e {
	case EndTimeout:
		text = fmt.Sprintf("given up %v ago", l.Ago.Round(time.Second))
	case EndNodeLost:
		text = fmt.Sprintf("ended by the loss of a node %v ago", l.Ago.Round(time.Second))
	case EndSucceeded, EndFailed, EndClosed, EndPreempted:
	}
	if len(l.Hosts) > 0 {
		text += " on " + strings.Join(l.Hosts, ", ")
	}
	if more := l.HostCount - len(l.Hosts); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// EndedError says that the run id has ended. It wraps [ErrGracefulExit] for EndSucceeded, [ErrTimeout] for EndTimeout,
// and [ErrClosed] otherwise.
type EndedError struct {
	Outcome Outcome
	// Late is nil if the agent had joined before the run ended.
	Late *Late
}

func (e *EndedError) Error() string {
	if e.Outcome.Ending == EndPreempted {
		return "the job was preempted: " + e.Outcome.Text
	}
	if e.Outcome.Text != "" {
		return fmt.Sprintf("the job has ended (%s): %s", e.Outcome.Ending, e.Outcome.Text)
	}
	return fmt.Sprintf("the job has ended (%s)", e.Outcome.Ending)
}

// Unwrap returns the kind of the error.
func (e *EndedError) Unwrap() error {
	switch e.Outcome.Ending {
	case EndSucceeded:
		return ErrGracefulExit
	case EndTimeout:
		return ErrTimeout
	case EndFailed, EndClosed, EndNodeLost, EndPreempted:
	}
	return ErrClosed
}

// The beginnings of Stop.Why after a failure. WhyWaited says that the worker reports only that it waited for a peer in
// vain. Every node then looks for a worker that was absent.
const (
	WhyFailed = "a worker has failed"
	WhyWaited = "a worker has waited for a peer in vain"
)

// Stop orders an agent to stop its workers in a round. The agent then enters the next round with
// [Handler.NextRendezvous].
type Stop struct {
	Round int
	// Why is the reason, one line for people.
	Why string
	// Final says that the job has ended, so the workers may take the time of a shutdown, not that of a restart.
	Final bool
	// Silence says that the round ends only because this node has not heard from the rendezvous for long, or has lost it.
	// If all workers had exited with 0 by then, the agent may still call Succeed. Succeed returns a Stop if the round has
	// ended otherwise.
	Silence bool
	// Preemption, unless it is nil, asks the agent to let the workers save before it stops them. KillBy is set, and is
	// later than the end of the preemption's grace unless the workers were being stopped already.
	Preemption *Preemption
	// KillBy is when SIGKILL must have ended the last worker, whatever the grace period. Zero means that the grace
	// period decides.
	KillBy time.Time
}

// Merge returns s with what an earlier Stop of the same round adds: a Preemption that s lacks, an earlier KillBy, and
// Final. If earlier is about another round, Merge returns s unchanged.
func (s Stop) Merge(earlier Stop) Stop {
	if s.Round != earlier.Round {
		return s
	}
	if s.Preemption == nil {
		s.Preemption = earlier.Preemption
	}
	if by := earlier.KillBy; !by.IsZero() && (s.KillBy.IsZero() || by.Before(s.KillBy)) {
		s.KillBy = by
	}
	s.Final = s.Final || earlier.Final
	return s
}

// Quiet says that no worker of a node shows a sign of life.
type Quiet struct {
	// For is the time since the last sign of any worker of the node.
	For time.Duration `json:"for"`
	// Learned says that so long a silence is unusual for these workers. If it is false, they may be starting.
	Learned bool `json:"learned,omitempty"`
	// Held says why the silence does not count at present, such as a debugger; empty if it counts.
	Held string `json:"held,omitempty"`
}
