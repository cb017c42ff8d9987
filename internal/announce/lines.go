package announce

import (
	"strconv"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/plural"
	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/goodput"
)

// Start is what the first line says: what runs, on how many nodes, with how many workers.
type Start struct {
	Name         string // of the script or program
	Nodes        int
	Workers      int // of all nodes
	LocalWorkers int // of this node
	RunID        string
	OneThread    bool // the launcher has set OMP_NUM_THREADS to 1
}

// String returns the line, such as "train.py: 2 nodes, 8 workers (4 on this node), run id job7". A job of one node has
// no number of nodes, and an empty run id is left out.
func (s Start) String() string {
	var parts []string
	if s.Nodes > 1 {
		parts = append(parts, plural.Of(s.Nodes, "node"))
	}
	workers := plural.Of(s.Workers, "worker")
	if s.Workers != s.LocalWorkers {
		workers += " (" + strconv.Itoa(s.LocalWorkers) + " on this node)"
	}
	parts = append(parts, workers)
	if s.RunID != "" {
		parts = append(parts, "run id "+s.RunID)
	}
	if s.OneThread {
		parts = append(parts, "OMP_NUM_THREADS=1")
	}
	return s.Name + ": " + strings.Join(parts, ", ")
}

// Success is the content of the last line of a job that succeeded.
type Success struct {
	Name     string        // of the script or program
	Took     time.Duration // since the launcher started
	Restarts int           // charged ones
	// OthersUnknown says that only this node is known to have succeeded.
	OthersUnknown bool
	Used          *goodput.Goodput // of the whole job; nil if it is not known
}

// saysUsed reports whether the line says how the job used its time.
func (s Success) saysUsed() bool {
	return s.Used != nil && (s.Took >= shortJob || s.Restarts > 0) && s.Used.Total() > 0
}

// shortJob is the duration from which on a job without restarts shows its goodput.
const shortJob = 10 * time.Second

// String returns the line, such as "train.py succeeded in 3m12s, 0 restarts, 98.7 % running".
func (s Success) String() string {
	verb, others := " succeeded in ", ""
	if s.OthersUnknown {
		verb, others = " succeeded on this node in ", "; how the other nodes end is not known"
	}
	used := ""
	if s.saysUsed() {
		used = ", " + s.Used.String()
	}
	return s.Name + verb + seconds.Format(s.Took) + ", " + plural.Of(s.Restarts, "restart") + used + others
}
