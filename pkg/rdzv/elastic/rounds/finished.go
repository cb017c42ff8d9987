package rounds

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Launch identifies one launch: the agents that one command, of a scheduler or a person, starts on all nodes.
type Launch struct {
	// ID is the same on all agents of the launch and on no others; empty if it is not known.
	ID string `json:"id,omitempty"`
	// Restarts says that the manager of the launch may restart an agent that has ended. If it is false, an agent that
	// arrives after the end of its run belongs to another command.
	Restarts bool `json:"restarts,omitempty"`
}

// FinishedRun is what the leader keeps of a finished run, beside its outcome, for agents that come later.
type FinishedRun struct {
	// Epoch is the epoch of the leader that ended the run. A fence with this epoch or a lower one belongs to this run or
	// an earlier one.
	Epoch coord.Revision `json:"epoch"`
	// Round is the number of the last round. The rounds of the next run continue from it.
	Round int `json:"round"`
	// Ended is when the run ended, in Unix seconds. Clocks differ, so it is only for people.
	Ended int64 `json:"ended"`
	// TTL is the run's result_ttl.
	TTL time.Duration `json:"ttl"`
	// Hosts are the first hosts of the last round; HostCount is how many there were.
	Hosts     []string `json:"hosts,omitempty"`
	HostCount int      `json:"host_count,omitempty"`
	// Launches are the launches of the agents that were present: agents with a session at the end, and agents in the last
	// round. A zero Launch stands for an unknown one.
	Launches []Launch `json:"launches,omitempty"`
	// Commands are the commands of those agents. Nodes has, by placeKey, the index of each node's command, or
	// unknownCommand.
	Commands []string       `json:"commands,omitempty"`
	Nodes    map[string]int `json:"there,omitempty"`
}

const (
	// maxLaunches bounds FinishedRun.Launches. A run that reaches the bound counts as having no launch of its own.
	maxLaunches = 64
	// maxFinishedNodes bounds FinishedRun.Nodes, so that the value fits into one commit. Further nodes count as absent.
	maxFinishedNodes = 1 << 14
)

// unknownCommand stands for the command of a node whose agent the leader that ended the run has not seen.
const unknownCommand = -1

// placeKey identifies the place of a node: its machine, or the rank it was given. A rerun has the same places, although
// its agents may have other slots on the machine.
func placeKey(identity string) string {
	if slash := strings.LastIndexByte(identity, '/'); slash >= 0 {
		identity = identity[:slash]
	}
	sum := sha256.Sum256([]byte(identity))
	return hex.EncodeToString(sum[:5])
}

// addMember adds a member of the last round that has no session any more, unless another agent has taken its place.
// node is nil if only its identity is known.
func (f *FinishedRun) addMember(identity string, node *Node) {
	_, taken := f.Nodes[placeKey(identity)]
	switch {
	case taken:
	case node != nil:
		f.add(*node)
	case len(f.Nodes) < maxFinishedNodes:
		f.Nodes[placeKey(identity)] = unknownCommand
	}
}

// add adds a node that was present.
func (f *FinishedRun) add(n Node) {
	if len(f.Launches) < maxLaunches && !slices.Contains(f.Launches, n.Launch) {
		f.Launches = append(f.Launches, n.Launch)
	}
	at := slices.Index(f.Commands, n.Command)
	if at < 0 {
		at = len(f.Commands)
		f.Commands = append(f.Commands, n.Command)
	}
	if len(f.Nodes) < maxFinishedNodes {
		f.Nodes[placeKey(n.Identity)] = at
	}
}

// ArrivalVerdict is the leader's decision about an agent that arrives at a finished run.
type ArrivalVerdict int

// The verdicts.
const (
	RefuseArrival ArrivalVerdict = iota // the agent may be late or a rerun: it is refused
	LearnResult                         // the agent is late, or was restarted: it learns the result
	StartRerun                          // the agent is a rerun: it begins the run again
)

// JudgeArrival decides how to treat an agent that arrives at a run that finished with ending. f is nil if only the
// outcome is known.
//
// The launch decides if it is known: an agent of the run's launch is late, an agent of another launch is a rerun. If no
// launch is known, as with two terminals, a node that was present is a rerun: its agent has ended, and a person has
// started another agent.
func (f *FinishedRun) JudgeArrival(n Node, ending rdzv.Ending) ArrivalVerdict {
	command, present, known := f.command(n)
	same, other := f.compareLaunch(n.Launch)
	switch {
	case same && ending == rdzv.EndPreempted && n.Launch.Restarts: // the scheduler has given the job a node again
		return StartRerun
	case same && ending == rdzv.EndClosed: // a person or program closed the run: this launch gets no further round
		return LearnResult
	case same && present && !n.Launch.Restarts, same && known && command != n.Command:
		return StartRerun
	case same && !known && n.Launch.Restarts && n.Command != "" && len(f.Commands) > 0 &&
		!slices.Contains(f.Commands, n.Command): // same launch, but another command
		return RefuseArrival
	case same:
		return LearnResult
	case other, present:
		return StartRerun
	case ending == rdzv.EndTimeout: // too few nodes came, so any node may try again
		return StartRerun
	}
	return RefuseArrival
}

// command returns what the node ran, whether it was present, and whether its command is known.
func (f *FinishedRun) command(n Node) (command string, present, known bool) {
	if f == nil {
		return "", false, false
	}
	at, present := f.Nodes[placeKey(n.Identity)]
	if !present || at < 0 || at >= len(f.Commands) {
		return "", present, false
	}
	return f.Commands[at], true, true
}

// compareLaunch reports whether l is certainly the run's launch, or certainly another one. Neither is certain if
// several launches started the run's nodes, such as one job step for each node.
func (f *FinishedRun) compareLaunch(l Launch) (same, other bool) {
	if f == nil {
		return false, false
	}
	for _, of := range f.Launches {
		same = same || of.ID == l.ID
	}
	return same && l.ID != "", !same && len(f.Launches) == 1
}

// Lateness describes the run's end to an agent that arrives now.
func (f *FinishedRun) Lateness(wall time.Time) *rdzv.Late {
	if f == nil {
		return &rdzv.Late{}
	}
	return &rdzv.Late{Ago: max(0, wall.Sub(time.Unix(f.Ended, 0))), Hosts: f.Hosts, HostCount: f.HostCount}
}

// PastRun is a finished run; a later run uses the same id.
type PastRun struct {
	Run     FinishedRun  `json:"run"`
	Outcome rdzv.Outcome `json:"outcome"`
}

// maxPast is how many past runs of an id are kept.
const maxPast = 8

// appendPastRun adds a finished run to the past ones. newLaunches begin the next run, so they no longer belong to a
// past one.
func appendPastRun(past []PastRun, run *FinishedRun, outcome rdzv.Outcome, newLaunches []Launch) []PastRun {
	var kept []PastRun
	if run != nil {
		past = append(slices.Clip(past), PastRun{*run, outcome})
	}
	for _, p := range past[max(0, len(past)-maxPast):] {
		p.Run.Nodes, p.Run.Commands = nil, nil
		p.Run.Launches = slices.DeleteFunc(slices.Clone(p.Run.Launches), func(l Launch) bool {
			return l.ID == "" || slices.ContainsFunc(newLaunches, func(of Launch) bool { return of.ID == l.ID })
		})
		kept = append(kept, p)
	}
	return kept
}

// FindPastRun returns the past run that an agent belongs to, because it was in one of its rounds or is of its launch;
// nil if there is none.
func FindPastRun(past []PastRun, r *Report) *PastRun {
	for i := range past {
		if p := &past[i]; r.Fence.Epoch != 0 && r.Fence.Epoch <= p.Run.Epoch {
			return p
		}
	}
	for i := range past {
		if same, _ := past[i].Run.compareLaunch(r.Node.Launch); same && r.Fence.Epoch == 0 {
			return &past[i]
		}
	}
	return nil
}

// FinishedError reports that the run id belongs to a run that has finished, and that this agent is neither known to be
// late for that run nor known to begin another one. Nothing was started.
type FinishedError struct {
	RunID  string
	Ending rdzv.Ending
	Late   rdzv.Late
}

func (e *FinishedError) Error() string {
	return fmt.Sprintf("run %q already finished (%s), and this node was not in it when it ended; nothing was started. "+
		"Use a new --rdzv-id to start another run.", e.RunID, e.Late.Describe(e.Ending))
}

// Unwrap returns [rdzv.ErrClosed].
func (e *FinishedError) Unwrap() error { return rdzv.ErrClosed }
