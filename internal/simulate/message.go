package simulate

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
)

// order is what the agents' process is told, on its stdin.
type order struct {
	Config *config // the first order has it, and nothing else
	Verb   verb
	Agents []int // whom it is about
}

// config is what all agents have in common.
type config struct {
	Addr      string // of the store
	Job       elastic.Job
	KeepAlive time.Duration
	Seed      uint64
}

// verb says what happens to agents.
type verb int

const (
	verbJoin    verb = iota // they are started, and enter
	verbFail                // one of their workers fails
	verbKill                // they are gone, with their connections
	verbLeave               // they say that they leave, and do
	verbCut                 // nothing that they send arrives any more, and they hear nothing
	verbSucceed             // their workers end with 0
	verbUsage               // the process is to say what it takes
)

// news is what the agents' process says, on its stdout.
type news struct {
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

// stop is an agent that was told to stop its workers of a round, and has.
type stop struct{ Agent, Round int }

// end is an agent that has left the rendezvous.
type end struct {
	Agent int
	Err   string // empty: the job has succeeded, or it left as it was told to
}
