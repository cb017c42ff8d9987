package simulate

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// order is what the agents' process reads from its stdin.
type order struct {
	Config *config // only in the first order, which has nothing else
	Verb   verb
	Agents []int // the agents it applies to
}

// config is what all agents have in common.
type config struct {
	RunID     string // of this run alone
	Port      int    // of the store, at loopback
	Voters    int    // Options.Voters
	Job       rounds.Job
	KeepAlive time.Duration
	Seed      uint64
}

// verb is what happens to agents.
type verb int

const (
	verbJoin    verb = iota // they start and enter
	verbFail                // one of their workers fails
	verbKill                // their connections close without notice
	verbLeave               // they announce that they leave, and leave
	verbCut                 // nothing that they send arrives, and nothing reaches them
	verbSucceed             // their workers exit with 0
	verbUsage               // the process reports its resource usage
)

// update is what the agents' process writes to its stdout.
type update struct {
	Entries []entry
	Stops   []stop
	Ends    []end
	Usage   *Usage
}

// entry is an agent that has got its rank in a round.
type entry struct {
	Agent, Round, Rank, Nodes int
	Nproc, Base, World        int
	Restarts                  int
}

// stop is an agent that has stopped its workers of a round because the leader asked it to.
type stop struct{ Agent, Round int }

// end is an agent that has left the rendezvous.
type end struct {
	Agent int
	Err   string // empty: the job has succeeded, or the agent left as ordered
}
