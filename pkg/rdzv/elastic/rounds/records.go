package rounds

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/goodput"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Fence orders decisions, first by the leader's term, then by the round.
type Fence struct {
	Epoch coord.Revision `json:"e"` // 0 only before the first decision
	Round int            `json:"n"`
}

// before reports whether f is older than g.
func (f Fence) before(g Fence) bool {
	return f.Epoch < g.Epoch || f.Epoch == g.Epoch && f.Round < g.Round
}

// Node describes an agent's node. It does not change while the agent runs.
type Node struct {
	Host string `json:"host"` // for people, and for the order of ranks
	// Identity is the same after the node's agent was started again, for the order of ranks and the count of losses.
	Identity string `json:"id"`
	Hint     int    `json:"hint"` // the node rank that was given; -1: none
	Role     string `json:"role"`
	Nproc    int    `json:"nproc"`
	// Launch identifies the launch that started the agent.
	Launch Launch `json:"launch,omitzero"`
	// Command distinguishes the commands of workers; empty if it is not known.
	Command string `json:"command,omitempty"`
}

// Phase is what an agent's workers are doing.
type Phase string

// The phases.
const (
	Ready   Phase = "ready"   // no worker of the round in Fence or of an earlier round is left
	Busy    Phase = "busy"    // workers of the round in Fence may run
	Failing Phase = "failing" // a worker of the round in Fence has failed; the rest are being stopped
	Done    Phase = "done"    // all workers of the round in Fence have exited with 0
)

// Report is what an agent reports to the leader.
type Report struct {
	Node  Node  `json:"node"`
	Job   Job   `json:"job"`
	Fence Fence `json:"fence"` // of the round that Phase is about; zero before the first
	Phase Phase `json:"phase"`
	// Uptime is how long the agent had been in that round when Phase was last set.
	Uptime time.Duration `json:"uptime,omitempty"`
	// Silent says, with Ready or Failing, that the workers were stopped, or killed by the watchdog, because the store had
	// not answered for too long.
	Silent bool `json:"silent,omitempty"`
	// Stuck says, with Busy, that the agent does not respond to its handler: it may never have started its workers.
	Stuck bool `json:"stuck,omitempty"`
	// Earlier says that this agent had a session in an earlier store of the run, which this store has replaced.
	Earlier bool `json:"earlier,omitempty"`
	// HadRound says that this agent was in a round of an earlier store.
	HadRound bool `json:"had_round,omitempty"`
	// Before is how the time was used in that store, as far as this agent knows. It is immutable once it is in a report.
	Before *goodput.Goodput `json:"before,omitempty"`
	// Leaving says, before any worker is signaled, that the node is about to leave.
	Leaving bool `json:"leaving,omitempty"`
	// Departing asks, with Done, to leave the exit barrier though other nodes still run.
	Departing bool `json:"departing,omitempty"`
	// Close asks the leader to end the run.
	Close bool `json:"close,omitempty"`
	// CloseBy says for people who has asked the agent to close the run; empty stands for the agent's node.
	CloseBy string `json:"close_by,omitempty"`
	// Preempt asks the leader to end the job by a preemption, or says that the agent has learned of one. It stays, so that
	// the leader of another store learns of it, too. It is immutable once it is in a report; its Left is as of the write.
	Preempt *rdzv.Preemption `json:"preempt,omitempty"`
	// PreemptAge is how long before the write the agent asked for the preemption or learned of it.
	PreemptAge time.Duration `json:"preempt_age,omitempty"`
	// preemptAt is the time of that, on the agent's clock.
	preemptAt time.Duration
	// Finished says, with Ready, that the node's workers in the round in Fence have done all their work. Stop and
	// ExcludeNode are likewise those of rdzv.Member.
	Finished    bool `json:"finished,omitempty"`
	Stop        bool `json:"stop,omitempty"`
	ExcludeNode bool `json:"exclude_node,omitempty"`
	// Steps are the steps of the node's workers in the round in Fence. They are immutable once they are in a report.
	Steps *StepTimes `json:"steps,omitempty"`
	// Started is how long after the agent entered that round its workers had been started. It is immutable once it is in
	// a report; so is Ran.
	Started *time.Duration `json:"started,omitempty"`
	// Ran is how long the agent had been in that round when its first worker failed, when all of them had exited with 0,
	// or when they had to stop.
	Ran *time.Duration `json:"ran,omitempty"`
	// Unreached says that the node has not reached the worker store of the round in Fence. It stays until the next
	// round.
	Unreached *Unreached `json:"unreached,omitempty"`
	// Quiet says, with Busy, that the node's workers have shown no progress for long. It is immutable once it is in a
	// report, and its time is as of the write.
	Quiet *rdzv.Quiet `json:"quiet,omitempty"`
	// quietSince is since when the workers have shown none, on the agent's clock.
	quietSince time.Duration
	// Hang is what this agent has found when the leader asked it to look at all workers of the job. It is immutable once
	// it is in a report.
	Hang *HangFinding `json:"hang,omitempty"`
	// Failure is the likeliest cause among the node's own failures in that round.
	Failure *rdzv.Failure `json:"failure,omitempty"`
	// failedAt is when the failure happened, on the agent's clock. The age in a report is as of the write.
	failedAt time.Duration
	// Store is the worker store that the node offers for the next round.
	Store Offer `json:"store"`
	// StoreMember is the address at which this agent can help to keep the coordination store; empty if it cannot.
	StoreMember string `json:"store_member,omitempty"`
}

// AsOf returns the report with its ages and remaining times as of now, on the agent's clock. It does not change r.
func (r Report) AsOf(now time.Duration) Report {
	if r.Failure != nil {
		f := *r.Failure
		f.Age, r.Failure = now-r.failedAt, &f
	}
	if r.Quiet != nil {
		q := *r.Quiet
		q.For, r.Quiet = now-r.quietSince, &q
	}
	if r.Preempt != nil {
		p := *r.Preempt
		r.Preempt, r.PreemptAge = &p, now-r.preemptAt
		if p.Left > 0 {
			p.Left = max(1, p.Left-r.PreemptAge)
		}
	}
	return r
}

// Unreached says that a node does not reach the worker store of its round. It is immutable once it is in a report.
type Unreached struct {
	For time.Duration `json:"for"` // how long the node had tried
	Why string        `json:"why"` // the error of the last attempt
}

// Offer describes the worker store that a node provides if it becomes rank 0.
type Offer struct {
	Addrs []string `json:"addrs,omitempty"` // in order of preference
	Port  int      `json:"port,omitempty"`
	Nonce string   `json:"nonce,omitempty"` // distinguishes the store from another one at the same address
	// WorkersHost says that nothing listens yet: the worker of rank 0 will, on Port.
	WorkersHost bool `json:"workers_host,omitempty"`
}

// AnswerKind is what an answer asks of an agent.
type AnswerKind string

// The kinds.
const (
	Wait   AnswerKind = "wait"   // wait for a later round; Note says why
	Run    AnswerKind = "run"    // run the round in Fence
	Halt   AnswerKind = "halt"   // stop the workers of the round in Fence and report Ready
	End    AnswerKind = "end"    // the job has ended
	Refuse AnswerKind = "refuse" // the agent does not fit the job; Note says why
	// Depart says that the success of the round in Fence stands: leave the exit barrier. Note says who still runs.
	Depart AnswerKind = "depart"
	// Replace says that another agent has come for the same node: this one must end.
	Replace AnswerKind = "replace"
)

// Answer is the leader's answer to one agent's reports.
type Answer struct {
	Fence   Fence         `json:"fence"`
	Kind    AnswerKind    `json:"kind"`
	Note    string        `json:"note,omitempty"`
	Place   *Place        `json:"place,omitempty"`   // of Run, unless Hang is set
	Outcome *rdzv.Outcome `json:"outcome,omitempty"` // of End
	// Grow says, with Halt, that the round ends though no worker has failed, for example to let newcomers in: failures
	// from then on are consequences.
	Grow bool `json:"grow,omitempty"`
	// Next says, with Wait, that the wait is long: Note is for people, and another Wait follows after Next unless a round
	// begins before.
	Next time.Duration `json:"next,omitempty"`
	// Missing says, with Wait, that too few nodes have come.
	Missing bool `json:"missing,omitempty"`
	// Late says, with End and Refuse, that the run had finished before the agent came. With Refuse, Outcome is set too.
	Late *rdzv.Late `json:"late,omitempty"`
	// Again asks the agent, with Wait, to open the rendezvous again once this store has ended: it ends with the finished
	// run.
	Again bool `json:"again,omitempty"`
	// Hang, with Run, is about a suspected hang of the round that the agent is in.
	Hang *HangOrder `json:"hang,omitempty"`
	// Preemption asks the agent, with Halt, to let its workers save first.
	Preemption *rdzv.Preemption `json:"preemption,omitempty"`
	// JoinStore asks the agent, with Wait, to help to keep the coordination store, as Place.JoinStore does with Run.
	JoinStore bool `json:"join_store,omitempty"`
}

// Place is one node's place in a round.
type Place struct {
	Rank       int             `json:"rank"`
	Nodes      int             `json:"nodes"`
	Assignment rdzv.Assignment `json:"assignment"`
	Restarts   int             `json:"restarts"`
	Store      Offer           `json:"store"` // of rank 0
	// Lost and Same are rdzv.Round's LostNodes and SameFailures.
	Lost int `json:"lost,omitempty"`
	Same int `json:"same,omitempty"`
	// Used is rdzv.Round's.
	Used *shortUsed `json:"used,omitempty"`
	// StoreEndsWithRun says that one agent hosts the coordination store, or several keep it: it ends with the run.
	StoreEndsWithRun bool `json:"store_ends,omitempty"`
	// JoinStore asks the agent to help to keep the coordination store: Report.StoreMember.
	JoinStore bool `json:"join_store,omitempty"`
}

// Record is a decided round. The ranks of the members and their workers follow from it alone, so any later leader can
// assign them.
type Record struct {
	Round    int            `json:"round"`
	Members  []RecordMember `json:"members"` // in rank order
	Restarts int            `json:"restarts"`
	Short    int            `json:"short,omitempty"` // rounds in a row before this one that failed within MinUptime
	// Charges are the ages, at the commit, of the charged failures that are not forgiven.
	Charges []time.Duration `json:"charges,omitempty"`
	// Unstopped are the agents that had not stopped the workers of an earlier round at the commit, with that round.
	Unstopped map[coord.SessionID]int `json:"fenced,omitempty"`
	// Losses are the ages, at the commit, of the losses of each identity that still count.
	Losses map[string][]time.Duration `json:"losses,omitempty"`
	// Faults are the nodes that were quarantined for a fault or kept from rank 0, by identity.
	Faults map[string]NodeFault `json:"aside,omitempty"`
	// Lost is how many members of the round before were lost. Same counts the failures in a row like the one that ended
	// it; 0 if none did.
	Lost int `json:"lost,omitempty"`
	Same int `json:"same,omitempty"`
	// Repeats is what the failures of the rounds before have in common; nil before the first.
	Repeats *repeats `json:"repeats,omitempty"`
	// Unreached counts the rounds in a row before this one that failed because rank 0 was not reached.
	Unreached int `json:"unreached,omitempty"`
	// Ledger is how the time before this round was used; nil before the first.
	Ledger *ledger `json:"ledger,omitempty"`
}

// NodeFault is the saved form of a node's faults, with ages as of the commit. Age is that of the last quarantine; until
// there is one, that of the last fault.
type NodeFault struct {
	Age    time.Duration `json:"age"`
	Times  int           `json:"times,omitempty"` // quarantines; 0: none
	Host   string        `json:"host"`
	Reason string        `json:"why"`
	// Unreachable is how long ago the others failed to reach its worker store; nil: never.
	Unreachable *time.Duration `json:"unreachable,omitempty"`
	// Missed is how long ago it and another node did not reach each other, by the identity of the other node.
	Missed map[string][]time.Duration `json:"missed,omitempty"`
	// PairedWith is the identity of the other node if this one is quarantined for not reaching it; otherwise empty.
	PairedWith string `json:"by,omitempty"`
}

// RecordMember is a node of a decided round.
type RecordMember struct {
	ID       coord.SessionID `json:"s"`
	Identity string          `json:"i"`
	Host     string          `json:"h,omitempty"` // left out of the record of a very large job
	Role     string          `json:"r"`
	Nproc    int             `json:"n"`
	// New says that the node was not in the job before, or not long enough to be known to work. In a job's first round
	// no node is new.
	New   bool   `json:"w,omitempty"`
	Store *Offer `json:"o,omitempty"` // of rank 0 only
}
