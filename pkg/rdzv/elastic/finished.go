package elastic

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Launch names the launch that an agent belongs to: what one command of a scheduler or of a person starts on all nodes.
type Launch struct {
	// ID is the same on all agents of the launch and on no others; empty where it is not known.
	ID string `json:"id,omitempty"`
	// Restarts says that the manager of the launch may start an agent again which has ended. Where it is false, an agent that comes again
	// after the end of its run runs another command.
	Restarts bool `json:"restarts,omitempty"`
}

// finishedRun is what the leader keeps of a run beside its outcome, for agents that come later.
type finishedRun struct {
	// Epoch is that of the leader which ended the run. A fence that is not later is of this run or of one before.
	Epoch coord.Revision `json:"epoch"`
	// Round is the number of its last round, from which the rounds of the next run count on.
	Round int `json:"round"`
	// Ended is when the run ended, in Unix seconds. It is for people only, since clocks differ.
	Ended int64 `json:"ended"`
	// TTL is the result_ttl of the run.
	TTL time.Duration `json:"ttl"`
	// Hosts are the first of the hosts of the last round, HostCount is how many there were.
	Hosts     []string `json:"hosts,omitempty"`
	HostCount int      `json:"host_count,omitempty"`
	// Launches are those of the agents that were there at the end; one that is not known is there, too, as the zero value.
	Launches []Launch `json:"launches,omitempty"`
	// Commands are their commands, and There has the index of the command of each node that was there, by placeKey.
	Commands []string       `json:"commands,omitempty"`
	There    map[string]int `json:"there,omitempty"`
}

// maxLaunches bounds finishedRun.Launches. A run of so many has no launch of its own.
const maxLaunches = 64

// maxThere bounds finishedRun.There, so that the record fits into one commit. Nodes beyond it count as nodes that were not there.
const maxThere = 1 << 14

// placeKey names the place of a node: its machine, or the rank that it was given. A rerun has the same places, but its agents may have other slots.
func placeKey(n Node) string {
	place := n.Identity
	if slash := strings.LastIndexByte(place, '/'); slash >= 0 {
		place = place[:slash]
	}
	return shortHash(place)[:10]
}

// add takes in a node that was there at the end.
func (f *finishedRun) add(n Node) {
	if len(f.Launches) < maxLaunches && !slices.Contains(f.Launches, n.Launch) {
		f.Launches = append(f.Launches, n.Launch)
	}
	at := slices.Index(f.Commands, n.Command)
	if at < 0 {
		at = len(f.Commands)
		f.Commands = append(f.Commands, n.Command)
	}
	if len(f.There) < maxThere {
		f.There[placeKey(n)] = at
	}
}

// verdict is what becomes of an agent that comes to a run which has finished.
type verdict int

const (
	refused verdict = iota // nobody can tell whether it is late or a rerun: it is refused
	learns                 // it is late, or was restarted: it learns the result
	anew                   // it is a rerun: it begins the run anew
)

// judge decides what becomes of a new agent at a run that finished with ending. f is nil where only the outcome is known.
//
// The launch decides where it is known: an agent of the run's launch is late, and an agent of another launch is a rerun. Where nothing is known, as on
// two terminals, a node that was there at the end is a rerun: its agent has read the result, and somebody has started another one.
func (f *finishedRun) judge(n Node, ending rdzv.Ending) verdict {
	command, there := f.command(n)
	same, other := f.compare(n.Launch)
	switch {
	case ending == rdzv.EndClosed: // somebody wanted no further round
		return learns
	case same && there && (!n.Launch.Restarts || command != n.Command):
		return anew
	case same && !there && n.Launch.Restarts && n.Command != "" && len(f.Commands) > 0 && !slices.Contains(f.Commands, n.Command):
		return refused // by its name of the run's launch, and yet something else
	case same:
		return learns
	case other, there:
		return anew
	case ending == rdzv.EndTimeout: // too few nodes came; whoever comes may try again
		return anew
	}
	return refused
}

// command returns what the node ran, and whether it was there at the end.
func (f *finishedRun) command(n Node) (command string, there bool) {
	if f == nil {
		return "", false
	}
	at, there := f.There[placeKey(n)]
	if !there || at < 0 || at >= len(f.Commands) {
		return "", there
	}
	return f.Commands[at], true
}

// compare says whether l is certainly the run's launch, or certainly another one. A run whose nodes were started by several launches, such as one
// job step for each node, leaves both open.
func (f *finishedRun) compare(l Launch) (same, other bool) {
	if f == nil {
		return false, false
	}
	for _, of := range f.Launches {
		same = same || of.ID == l.ID
	}
	return same && l.ID != "", !same && len(f.Launches) == 1
}

// late is what an agent that comes now is told of the run.
func (f *finishedRun) late(wall time.Time) *rdzv.Late {
	if f == nil {
		return &rdzv.Late{}
	}
	return &rdzv.Late{Ago: max(0, wall.Sub(time.Unix(f.Ended, 0))), Hosts: f.Hosts, HostCount: f.HostCount}
}

// pastRun is a run whose id another launch uses now.
type pastRun struct {
	Run     finishedRun  `json:"run"`
	Outcome rdzv.Outcome `json:"outcome"`
}

// maxPast is how many past runs of an id are kept: the last.
const maxPast = 8

// retire adds a run to the past ones. The agents in fresh begin the next run, which thus is their launches' run.
func retire(past []pastRun, run *finishedRun, outcome rdzv.Outcome, fresh []Launch) []pastRun {
	var kept []pastRun
	if run != nil {
		past = append(slices.Clip(past), pastRun{*run, outcome})
	}
	for _, p := range past[max(0, len(past)-maxPast):] {
		p.Run.There, p.Run.Commands = nil, nil
		p.Run.Launches = slices.DeleteFunc(slices.Clone(p.Run.Launches), func(l Launch) bool {
			return l.ID == "" || slices.ContainsFunc(fresh, func(of Launch) bool { return of.ID == l.ID })
		})
		kept = append(kept, p)
	}
	return kept
}

// pastOf finds the past run that an agent belongs to: it was in one of its rounds, or it is of its launch. It is nil where there is none.
func pastOf(past []pastRun, r *Report) *pastRun {
	for i := range past {
		if p := &past[i]; r.Fence.Epoch != 0 && r.Fence.Epoch <= p.Run.Epoch {
			return p
		}
	}
	for i := range past {
		if same, _ := past[i].Run.compare(r.Node.Launch); same && r.Fence.Epoch == 0 {
			return &past[i]
		}
	}
	return nil
}

// FinishedError says that the run id is that of a run which has finished, and that this agent is neither known to be late for that run nor known to be
// the begin of another one. Nothing was started.
type FinishedError struct {
	RunID  string
	Ending rdzv.Ending
	Late   rdzv.Late
}

func (e *FinishedError) Error() string {
	return fmt.Sprintf("run %q already finished (%s), and this node was not in it when it ended; nothing was started. Use a new --rdzv-id to start another run.",
		e.RunID, e.Late.Describe(e.Ending))
}

// Unwrap makes it an rdzv.ErrRendezvous.
func (e *FinishedError) Unwrap() error { return rdzv.ErrRendezvous }
