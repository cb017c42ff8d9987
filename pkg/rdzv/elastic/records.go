package elastic

import (
	"fmt"
	"strconv"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/goodput"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Keys of one run, below its prefix.
//
//	leader          owned by the leader's session; its create-revision is the epoch and guards every write of the leader
//	state/job/N     Job, the parameters of the run; when agents begin the run again, N grows
//	state/round/N   Record of the latest round, N: the commit point, created once
//	state/result    rdzv.Outcome, created once; expires after result_ttl
//	state/finished  finishedRun, written with the result; expires with it
//	state/departed/N/RANK departedMember: a node that has left the exit barrier of round N with success
//	state/succeeded/N/CHUNK successes: members of round N whose workers have all exited with 0
//	state/waiting   int: how many nodes wait to be in the next round; no key stands for 0
//	state/close     closeRequest: somebody wants the run to end; expires after a minute
//	state/close/SESSION written with state/close, owned by the session of who asks, until it has read the result
//	state/preempted savedPreemption: the run is being ended by a preemption; deleted with its result
//	state/past      []pastRun: earlier runs with this id; expires after result_ttl
//	store           storeAddrs: where the agents find the store that they keep together
//	agent/SESSION   Report, written by that agent, owned by its session
//	answer/SESSION  Answer, written by the leader
//	watcher/SESSION written by an observer of the run or an agent that looks for a hang, owned by its session
//	status/SESSION  Options.Status of that agent, written by it and owned by its session while there is an observer
//	stacks/SESSION  Options.Stacks of that agent, likewise, while an observer asks for stacks
const (
	keyLeader    = "leader"
	prefixJob    = "state/job/"
	prefixRound  = "state/round/"
	keyResult    = "state/result"
	keyFinished  = "state/finished"
	keyPast      = "state/past"
	keyClose     = "state/close"
	prefixClose  = "state/close/"
	keyWaiting   = "state/waiting"
	keyPreempted = "state/preempted"
	prefixState  = "state/"
	// prefixDeparted is below prefixState.
	prefixDeparted = "state/departed/"
	// prefixSucceeded is below prefixState.
	prefixSucceeded = "state/succeeded/"
	keyStore        = "store"
	prefixAgent     = "agent/"
	prefixAnswer    = "answer/"

	prefixWatcher = "watcher/"
	prefixStatus  = "status/"
	prefixStacks  = "stacks/"
)

// prefixOf returns the prefix of a run's keys. Run ids contain no slash.
func prefixOf(runID string) string { return runID + "/" }

// jobKey returns the key of the parameters of the run that was begun n times before without an end. Each beginning has
// a key of its own, so its create-revision names the run.
func jobKey(n int) string { return prefixJob + strconv.Itoa(n) }

// roundKey returns the key of a round's record.
func roundKey(round int) string { return prefixRound + strconv.Itoa(round) }

// Fence orders decisions, first by the leader's term, then by the round.
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
	Version  string `json:"version"` // of elasticrun
	Min      int    `json:"min"`
	Max      int    `json:"max"`
	Expected int    `json:"expected,omitempty"` // nodes known to come, clamped to [Min, Max]; 0: unknown
	// Multiple divides the number of nodes of each round, and Min and Max; 0 and 1 allow any number.
	Multiple      int           `json:"multiple,omitempty"`
	Static        bool          `json:"static,omitempty"` // ranks are the nodes' hints
	MaxRestarts   int           `json:"max_restarts"`
	RestartWindow time.Duration `json:"restart_window,omitempty"` // older failures are forgiven; 0: none is
	MaxNodeLosses int           `json:"max_node_losses"`          // losses in 10 minutes that quarantine a node; 0: none
	LastCall      time.Duration `json:"last_call"`
	JoinTimeout   time.Duration `json:"join_timeout"`
	JoinSettle    time.Duration `json:"join_settle"`
	// TTL is how long the store keeps the session of a silent agent.
	TTL time.Duration `json:"ttl,omitempty"`
	// Rejoin is how long nodes may take to stop the workers of a round; at least twice TTL.
	Rejoin    time.Duration `json:"rejoin_timeout"`
	MinUptime time.Duration `json:"min_uptime"` // failed rounds that were shorter are spaced by a pause
	Grow      Grow          `json:"grow"`
	ResultTTL time.Duration `json:"result_ttl"`
	Hangs     Hangs         `json:"hangs,omitzero"`
	Policy    Policy        `json:"policy,omitzero"`
	// PreemptGrace is how long workers may take to save when the job is preempted.
	PreemptGrace time.Duration `json:"preempt_grace,omitempty"`
}

// roundSize returns how many of n nodes a round may have.
func (j Job) roundSize(n int) int { return n - n%max(1, j.Multiple) }

// differenceFrom describes the first difference of two jobs in one line; empty if they are equal.
func (j Job) differenceFrom(from Job) string {
	if j == from { // nearly always, and every report has a job
		return ""
	}
	for _, f := range []struct {
		name   string
		ours   any
		theirs any
	}{
		{"elasticrun version", j.Version, from.Version},
		{"the minimum of --nnodes", j.Min, from.Min},
		{"the maximum of --nnodes", j.Max, from.Max},
		{"the divisor of the number of nodes (--nnodes-multiple, --world-size-multiple)", j.Multiple, from.Multiple},
		{"the static backend (--rdzv-backend)", j.Static, from.Static},
		{"--max-restarts", j.MaxRestarts, from.MaxRestarts},
		{"--restart-window", j.RestartWindow, from.RestartWindow},
		{"--max-node-losses", j.MaxNodeLosses, from.MaxNodeLosses},
		{"last_call_timeout", j.LastCall, from.LastCall},
		{"join_timeout", j.JoinTimeout, from.JoinTimeout},
		{"join_settle", j.JoinSettle, from.JoinSettle},
		{"keep_alive_interval × keep_alive_max_attempt", j.TTL, from.TTL},
		{"--rejoin-timeout", j.Rejoin, from.Rejoin},
		{"--min-uptime", j.MinUptime, from.MinUptime},
		{"--grow", j.Grow, from.Grow},
		{"result_ttl", j.ResultTTL, from.ResultTTL},
		{"--hang-timeout", j.Hangs.timeoutText(), from.Hangs.timeoutText()},
		{"--hang-action", j.Hangs.Action, from.Hangs.Action},
		{"--preempt-grace", j.PreemptGrace, from.PreemptGrace},
		{"--final-codes", j.Policy.FinalCodes, from.Policy.FinalCodes},
		{"--exclude-node-codes", j.Policy.ExcludeCodes, from.Policy.ExcludeCodes},
		{"--max-same-failures", j.Policy.MaxSame, from.Policy.MaxSame},
		{"--max-restarts-without-progress", j.Policy.MaxIdle, from.Policy.MaxIdle},
	} {
		if f.ours != f.theirs {
			return fmt.Sprintf("%s is %s on this node and %s in the job: give the same on all nodes", f.name, inWords(f.ours),
				inWords(f.theirs))
		}
	}
	return ""
}

// inWords formats a value of a job for people.
func inWords(value any) string {
	if d, ok := value.(time.Duration); ok {
		return seconds.Format(d)
	}
	return fmt.Sprint(value)
}

// Grow is when nodes that come to a running job are let in.
type Grow string

// The values of --grow.
const (
	GrowNow         Grow = "now"
	GrowNextRestart Grow = "next-restart"
	GrowNever       Grow = "never"
)

// Node describes an agent's node. It does not change while the agent runs.
type Node struct {
	Host string `json:"host"` // for people, and for the order of ranks
	// Identity is the same after the node's agent was started again, for the order of ranks and the count of losses.
	Identity string `json:"id"`
	Hint     int    `json:"hint"` // the node rank that was given; -1: none
	Role     string `json:"role"`
	Nproc    int    `json:"nproc"`
	// Launch is what started the agent.
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
	// Uptime is how long ago the agent entered that round.
	Uptime time.Duration `json:"uptime,omitempty"`
	// Silent says, with Ready, that the node stopped its workers because the store had not answered for too long.
	Silent bool `json:"silent,omitempty"`
	// Stuck says, with Busy, that the agent does not respond to its handler: it may never have started its workers.
	Stuck bool `json:"stuck,omitempty"`
	// Earlier says that this agent had a session in an earlier store of the run, which this store has replaced.
	Earlier bool `json:"earlier,omitempty"`
	// HadRound says that it was in a round of an earlier store.
	HadRound bool `json:"had_round,omitempty"`
	// Before is how the time was used in that store, as far as this agent knows. It is immutable once it is in a report.
	Before *goodput.Goodput `json:"before,omitempty"`
	// Leaving says, before any worker is signaled, that the node is about to leave.
	Leaving bool `json:"leaving,omitempty"`
	// Departing asks, with Done, to leave the exit barrier though other nodes still run.
	Departing bool `json:"departing,omitempty"`
	// Close asks the leader to end the run.
	Close bool `json:"close,omitempty"`
	// CloseBy says for people who has asked the agent for that; empty stands for the agent's node.
	CloseBy string `json:"close_by,omitempty"`
	// Preempt asks the leader to end the job by a preemption, or says that the agent has learned of one. It stays, so that
	// the leader of another store learns of it, too. It is immutable once it is in a report; its Left is as of the write.
	Preempt *rdzv.Preemption `json:"preempt,omitempty"`
	// PreemptAge is how long ago that was.
	PreemptAge time.Duration `json:"preempt_age,omitempty"`
	// preemptAt is when it was, on the agent's clock.
	preemptAt time.Duration
	// Finished says, with Ready, that the node's workers in the round in Fence have done all their work. Stop and
	// ExcludeNode are likewise those of rdzv.Member.
	Finished    bool `json:"finished,omitempty"`
	Stop        bool `json:"stop,omitempty"`
	ExcludeNode bool `json:"exclude_node,omitempty"`
	// Steps are the steps of the node's workers in the round in Fence. They are immutable once they are in a report.
	Steps *stepTimes `json:"steps,omitempty"`
	// Started is when the workers of that round had been started, since the agent entered it. It is immutable once it is
	// in a report; so is Ran.
	Started *time.Duration `json:"started,omitempty"`
	// Ran is how long the agent was in that round when the first one failed, when all had exited with 0, or when
	// they had to stop.
	Ran *time.Duration `json:"ran,omitempty"`
	// Unreached says that the node has not reached the worker store of the round in Fence. It stays until the next
	// round.
	Unreached *Unreached `json:"unreached,omitempty"`
	// Quiet says, with Busy, that the node's workers have shown no progress for long. It is immutable once it is in a
	// report, and its time is as of the write.
	Quiet *rdzv.Quiet `json:"quiet,omitempty"`
	// quietSince is since when they have shown none, on the agent's clock.
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

// asOf returns the report with the ages and times left as of now, on the agent's clock.
func (r Report) asOf(now time.Duration) Report {
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
	// JoinStore asks the agent, with Wait, for what Place.JoinStore asks those in a round.
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
	// StoreEndsWithRun says that an agent hosts the store. It is lost for good when that agent ends.
	StoreEndsWithRun bool `json:"store_ends,omitempty"`
	// JoinStore asks the agent to help to keep the coordination store: Report.StoreMember.
	JoinStore bool `json:"join_store,omitempty"`
}

// Record is a decided round. The members' places follow from it alone, so any later leader can assign them.
type Record struct {
	Round    int            `json:"round"`
	Members  []RecordMember `json:"members"` // in rank order
	Restarts int            `json:"restarts"`
	Short    int            `json:"short,omitempty"` // rounds in a row before this one that failed within MinUptime
	// Charges are the ages, at the commit, of the charged failures that are not forgiven.
	Charges []time.Duration `json:"charges,omitempty"`
	// Unstopped are the agents whose workers of an earlier round had not been stopped at the commit, with that round.
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

// NodeFault is what a node has done to the others. Ages are those at the commit.
type NodeFault struct {
	Age    time.Duration `json:"age"`
	Times  int           `json:"times,omitempty"` // quarantines; 0: none
	Host   string        `json:"host"`
	Reason string        `json:"why"`
	// Unreachable is how long ago the others failed to reach its worker store; nil: never.
	Unreachable *time.Duration `json:"unreachable,omitempty"`
	// Missed is how long ago it and another node did not reach each other, by the identity of the other node.
	Missed map[string][]time.Duration `json:"missed,omitempty"`
	// PairedWith is the identity of that other node if this one was quarantined for that; otherwise empty.
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
