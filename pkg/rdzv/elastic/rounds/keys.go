package rounds

import "strconv"

// Keys of one run, below its prefix.
//
//	leader          owned by the leader's session; its create-revision is the epoch and guards every write of the leader
//	state/job/N     Job, the parameters of the run; when agents begin the run again, N grows
//	state/round/N   Record of the latest round, N: the commit point, created once
//	state/result    rdzv.Outcome, created once; expires after result_ttl
//	state/finished  FinishedRun, written with the result; expires with it
//	state/departed/N/RANK DepartedMember: a node that has left the exit barrier of round N with success
//	state/succeeded/N/CHUNK Successes: members of round N whose workers have all exited with 0
//	state/waiting   int: how many nodes wait to be in the next round; no key stands for 0
//	state/close     CloseRequest: somebody wants the run to end; expires after a minute
//	state/close/SESSION written with state/close, owned by the session of who asks, until it has read the result
//	state/preempted rdzv.Preemption: the run is being ended by a preemption; deleted with its result
//	state/past      []PastRun: earlier runs with this id; expires after result_ttl
//	store           StoreAddrs: where the agents find the store that they keep together
//	agent/SESSION   Report, written by that agent, owned by its session
//	answer/SESSION  Answer, written by the leader
//	watcher/SESSION written by an observer of the run or an agent that looks for a hang, owned by its session
//	status/SESSION  Options.Status of that agent, written by it and owned by its session while there is an observer
//	stacks/SESSION  Options.Stacks of that agent, likewise, while an observer asks for stacks
const (
	KeyLeader    = "leader"
	PrefixJob    = "state/job/"
	PrefixRound  = "state/round/"
	KeyResult    = "state/result"
	KeyFinished  = "state/finished"
	KeyPast      = "state/past"
	KeyClose     = "state/close"
	PrefixClose  = "state/close/"
	KeyWaiting   = "state/waiting"
	KeyPreempted = "state/preempted"
	PrefixState  = "state/"
	// PrefixDeparted is below PrefixState.
	PrefixDeparted = "state/departed/"
	// PrefixSucceeded is below PrefixState.
	PrefixSucceeded = "state/succeeded/"
	KeyStore        = "store"
	PrefixAgent     = "agent/"
	PrefixAnswer    = "answer/"

	PrefixWatcher = "watcher/"
	PrefixStatus  = "status/"
	PrefixStacks  = "stacks/"
)

// PrefixOf returns the prefix of a run's keys. Run ids contain no slash.
func PrefixOf(runID string) string { return runID + "/" }

// JobKey returns the key of the parameters of the run that was begun n times before without an end. Each beginning has
// a key of its own, so its create-revision names the run.
func JobKey(n int) string { return PrefixJob + strconv.Itoa(n) }

// RoundKey returns the key of a round's record.
func RoundKey(round int) string { return PrefixRound + strconv.Itoa(round) }
