package elastic

import (
	"fmt"
	"strconv"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Keys of one run, below its prefix.
//
//	leader          under the leader's session; its create-revision is the epoch, and guards every write of the leader
//	state/job       Job, written by the first leader
//	state/round/N   Record of the latest round, N: the commit point, created once
//	state/result    rdzv.Outcome, created once; vanishes after result_ttl
//	state/finished  finishedRun, written with the result; vanishes with it
//	state/past      []pastRun: earlier runs with this id; vanishes after result_ttl
//	agent/SESSION   Report, written by that agent under its session
//	answer/SESSION  Answer, written by the leader
//	watcher/SESSION written by whoever looks at the run, under its session
//	status/SESSION  Options.Status of that agent, written by it under its session while there is a watcher
const (
	keyLeader    = "leader"
	keyJob       = "state/job"
	prefixRound  = "state/round/"
	keyResult    = "state/result"
	keyFinished  = "state/finished"
	keyPast      = "state/past"
	prefixState  = "state/"
	prefixAgent  = "agent/"
	prefixAnswer = "answer/"

	prefixWatcher = "watcher/"
	prefixStatus  = "status/"
)

// prefixOf is where the keys of a run are. Run ids hold no slash.
func prefixOf(runID string) string { return runID + "/" }

// roundKey is where the record of a round is.
func roundKey(round int) string { return prefixRound + strconv.Itoa(round) }

// Fence orders decisions: first by the leader's term, then by the round.
type Fence struct {
	Epoch coord.Revision `json:"e"` // 0 only before the first decision
	Round int            `json:"n"`
}

// before reports whether f is older than g.
func (f Fence) before(g Fence) bool {
	return f.Epoch < g.Epoch || f.Epoch == g.Epoch && f.Round < g.Round
}

// Job holds the parameters on which all agents of a run must agree.
type Job struct {
	Version       string        `json:"version"` // of elasticrun
	Min           int           `json:"min"`
	Max           int           `json:"max"`
	Expected      int           `json:"expected,omitempty"` // nodes that are known to come, clamped to [Min, Max]; 0: not known
	Static        bool          `json:"static,omitempty"`   // ranks are the nodes' hints
	MaxRestarts   int           `json:"max_restarts"`
	RestartWindow time.Duration `json:"restart_window,omitempty"` // failures older than that are forgiven; 0: never
	MaxNodeLosses int           `json:"max_node_losses"`          // losses in lossWindow that park a node; 0: none does
	LastCall      time.Duration `json:"last_call"`
	JoinTimeout   time.Duration `json:"join_timeout"`
	JoinSettle    time.Duration `json:"join_settle"`
	// TTL is how long the store keeps the session of an agent that says nothing.
	TTL time.Duration `json:"ttl,omitempty"`
	// Rejoin is how long nodes may take to stop the workers of a round, at least twice the sessions' TTL.
	Rejoin    time.Duration `json:"rejoin_timeout"`
	MinUptime time.Duration `json:"min_uptime"` // rounds that end sooner are spaced by backoff
	Grow      Grow          `json:"grow"`
	ResultTTL time.Duration `json:"result_ttl"`
}

// differs says in one line how two jobs differ; empty where they do not.
func (j Job) differenceFrom(from Job) string {
	if j == from { // as nearly always: each report has one
		return ""
	}
	for _, f := range []struct {
		name   string
		ours   any
		theirs any
	}{
		{"elasticrun version", j.Version, from.Version},
		{"min nodes", j.Min, from.Min},
		{"max nodes", j.Max, from.Max},
		{"static ranks", j.Static, from.Static},
		{"max restarts", j.MaxRestarts, from.MaxRestarts},
		{"restart window", j.RestartWindow, from.RestartWindow},
		{"max node losses", j.MaxNodeLosses, from.MaxNodeLosses},
		{"last_call_timeout", j.LastCall, from.LastCall},
		{"join_timeout", j.JoinTimeout, from.JoinTimeout},
		{"join_settle", j.JoinSettle, from.JoinSettle},
		{"keep-alive time", j.TTL, from.TTL},
		{"rejoin timeout", j.Rejoin, from.Rejoin},
		{"min uptime", j.MinUptime, from.MinUptime},
		{"grow", j.Grow, from.Grow},
		{"result_ttl", j.ResultTTL, from.ResultTTL},
	} {
		if f.ours != f.theirs {
			return fmt.Sprintf("%s is %v here and %v in the job", f.name, f.ours, f.theirs)
		}
	}
	return ""
}

// Grow says when nodes that come to a running job are let in.
type Grow string

// The values of --grow.
const (
	GrowNow         Grow = "now"
	GrowNextRestart Grow = "next-restart"
	GrowNever       Grow = "never"
)

// Node is what an agent says of itself once and for all.
type Node struct {
	Host string `json:"host"` // for people, and for the order of ranks
	// Identity finds the node again after its agent was started anew, for the order of ranks and the budget of losses.
	Identity string `json:"id"`
	Hint     int    `json:"hint"` // rank that the node was given, -1 for none
	Role     string `json:"role"`
	Nproc    int    `json:"nproc"`
	// Launch is what started the agent.
	Launch Launch `json:"launch,omitzero"`
	// Command tells the commands of workers apart; empty where it is not known.
	Command string `json:"command,omitempty"`
}

// Phase is what an agent's workers are doing.
type Phase string

// The phases.
const (
	Ready   Phase = "ready"   // no worker of the round in Fence, or of any before, is left
	Busy    Phase = "busy"    // workers of the round in Fence may run
	Failing Phase = "failing" // a worker of the round in Fence has failed; the rest are being stopped
	Done    Phase = "done"    // all workers of the round in Fence have exited with 0
)

// Report is what an agent tells the leader.
type Report struct {
	Node  Node  `json:"node"`
	Job   Job   `json:"job"`
	Fence Fence `json:"fence"` // of the round that Phase is about; zero before the first
	Phase Phase `json:"phase"`
	// Uptime is how long ago the agent entered that round.
	Uptime time.Duration `json:"uptime,omitempty"`
	// Silent tells, with Ready, that the node stopped its workers by itself, because it had not heard from the store for too long.
	Silent bool `json:"silent,omitempty"`
	// Stuck tells, with Busy, that the agent does not respond to the rendezvous: its workers may never have been started.
	Stuck bool `json:"stuck,omitempty"`
	// Earlier tells that this agent had a session in another store of the run, which this one has replaced.
	Earlier bool `json:"earlier,omitempty"`
	// Leaving tells, before any worker is signalled, that the node will go.
	Leaving bool `json:"leaving,omitempty"`
	// Close asks the leader to end the run.
	Close bool `json:"close,omitempty"`
	// Unreached tells that the node has not reached the worker store of the round in Fence. It stays until the next round.
	Unreached *Unreached `json:"unreached,omitempty"`
	// Failure is the likeliest cause among the node's own failures in that round.
	Failure *rdzv.Failure `json:"failure,omitempty"`
	// failedAt is when that happened by the agent's own clock, from which its age follows when the report is written.
	failedAt time.Duration
	// Store is where the node's worker store would be reached in the next round.
	Store Offer `json:"store"`
}

// Unreached says that a node does not reach the worker store of its round. It is not changed once it was reported.
type Unreached struct {
	For time.Duration `json:"for"` // how long it has tried when it says so
	Why string        `json:"why"` // what happened at the last attempt
}

// Offer is a worker store that listens, empty.
type Offer struct {
	Addrs []string `json:"addrs,omitempty"` // in the order of preference
	Port  int      `json:"port,omitempty"`
	Nonce string   `json:"nonce,omitempty"` // by which it is told from another store at the same address
	// WorkersHost says that nothing listens: the worker of rank 0 will, on that port.
	WorkersHost bool `json:"workers_host,omitempty"`
}

// Kind is what an answer asks of an agent.
type Kind string

// The kinds.
const (
	Wait   Kind = "wait"   // for a later round; Note says why
	Run    Kind = "run"    // the round in Fence
	Halt   Kind = "halt"   // stop the workers of the round in Fence and report Ready
	End    Kind = "end"    // the job has ended
	Refuse Kind = "refuse" // the agent does not fit the job; Note says why
	// Replace says that another agent has come for the same node: this one is to end.
	Replace Kind = "replace"
)

// Answer is what the leader tells one agent.
type Answer struct {
	Fence   Fence         `json:"fence"`
	Kind    Kind          `json:"kind"`
	Note    string        `json:"note,omitempty"`
	Place   *Place        `json:"place,omitempty"`   // of Run
	Outcome *rdzv.Outcome `json:"outcome,omitempty"` // of End
	// Grow tells, with Halt, that the round ends for the sake of newcomers, or because of an agent and not of its workers: failures from then on are its doing.
	Grow bool `json:"grow,omitempty"`
	// Next tells, with Wait, that the wait is a long one: people are to see the note, and there will be another one in that time, if there
	// is no round.
	Next time.Duration `json:"next,omitempty"`
	// Late tells, with End and Refuse, that the run had finished before the agent came. With Refuse, Outcome is there too.
	Late *rdzv.Late `json:"late,omitempty"`
	// Again asks the agent, with Wait, to open the rendezvous again once this store has gone: the store goes with the run that has finished.
	Again bool `json:"again,omitempty"`
}

// Place is one node's part in a round.
type Place struct {
	Rank       int             `json:"rank"`
	Nodes      int             `json:"nodes"`
	Assignment rdzv.Assignment `json:"assignment"`
	Restarts   int             `json:"restarts"`
	Store      Offer           `json:"store"` // of rank 0
}

// Record is a decided round. Places follow from it alone, so that any later leader can hand them out.
type Record struct {
	Round    int            `json:"round"`
	Members  []RecordMember `json:"members"` // in rank order
	Restarts int            `json:"restarts"`
	Short    int            `json:"short,omitempty"` // rounds in a row, up to the one before, that ended before MinUptime
	// Charges are the ages of the charged failures, at the commit, that are not forgiven.
	Charges []time.Duration `json:"charges,omitempty"`
	// Fenced are agents whose workers of an earlier round had not been stopped at the commit, with that round.
	Fenced map[coord.SessionID]int `json:"fenced,omitempty"`
	// Losses are the ages of the losses of each identity, at the commit, that still count.
	Losses map[string][]time.Duration `json:"losses,omitempty"`
	// Aside are the nodes that were set aside, by their identities.
	Faults map[string]NodeFault `json:"aside,omitempty"`
	// Unreached counts the rounds in a row, up to the one before, that came to nothing because rank 0 was not reached.
	Unreached int `json:"unreached,omitempty"`
}

// Aside is a node that was set aside. Ages are those at the commit.
type NodeFault struct {
	Age    time.Duration `json:"age"`
	Times  int           `json:"times,omitempty"` // 0: it was not
	Host   string        `json:"host"`
	Reason string        `json:"why"`
	// Unreachable is how long ago the others did not reach its worker store; nil: never.
	Unreachable *time.Duration `json:"unreachable,omitempty"`
	// Missed is how long ago it was one of two nodes that did not reach each other, by the identity of the other one.
	Missed map[string][]time.Duration `json:"missed,omitempty"`
	// By is the identity of the other one of two such nodes, if this one was set aside for that; else empty.
	PairedWith string `json:"by,omitempty"`
}

// Participant is a node of a round.
type RecordMember struct {
	ID       coord.SessionID `json:"s"`
	Identity string          `json:"i"`
	Role     string          `json:"r"`
	Nproc    int             `json:"n"`
	// New tells that the node was not in the job before, or not long enough to be known to work. Where nobody was, nobody is new.
	New   bool   `json:"w,omitempty"`
	Store *Offer `json:"o,omitempty"` // of rank 0 only
}
