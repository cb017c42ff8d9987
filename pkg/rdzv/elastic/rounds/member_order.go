package rounds

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Ending is the reason why an agent leaves the rendezvous for good. One of Outcome, Err and Departed is set.
type Ending struct {
	Outcome *rdzv.Outcome // the job has ended
	Late    *rdzv.Late    // with Outcome: set if the job had ended before this agent came
	Err     error         // this agent cannot take part
	// Replaced says, with Err, that another agent has come for the node.
	Replaced bool

	Departed bool   // the agent has left the exit barrier with success
	Others   string // with Departed: who still ran, one line; empty if the leader has not confirmed the departure
}

// Order is an instruction to the agent. One of its fields is set, besides KillIn.
type Order struct {
	Look *HangLook  // look at all workers of the job
	Hang *HangFound // the job hangs, as another agent has found
	// HangOver says that a worker of this node makes progress again.
	HangOver bool
	Run      *Answer    // start the round
	Notice   *Answer    // log why there is no round yet
	Warning  string     // log it
	Join     bool       // help to keep the store
	Reenter  bool       // enter again with a new worker store: others have used the one before
	Stop     *rdzv.Stop // stop the workers; KillBy is not set
	// KillIn, with Stop, is the time until SIGKILL must have ended the last worker. 0 means at once. If it is negative,
	// the grace period decides.
	KillIn time.Duration
}
