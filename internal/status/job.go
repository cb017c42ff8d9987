package status

import "github.com/elasticrun/elasticrun/pkg/report"

// Job is what is known of a job by asking its agents.
type Job struct {
	Schema int         `json:"schema"`
	Time   report.Time `json:"time"`
	RunID  string      `json:"run_id"`
	// Round is the last one that was decided; null before the first.
	Round *Round `json:"round"`
	// Result says how the job has ended, and Why says more: empty while it has not.
	Result string `json:"result,omitempty"`
	Why    string `json:"why,omitempty"`
	// Nodes are those of the round in rank order, then those that are in none.
	Nodes []Node `json:"nodes"`
}

// Round is a decided one.
type Round struct {
	Number      int `json:"number"`
	Nodes       int `json:"nodes"`
	WorldSize   int `json:"world_size"`
	Restarts    int `json:"restarts"`
	MaxRestarts int `json:"max_restarts"`
}

// Node is a node of a job.
type Node struct {
	Rank *int   `json:"rank"` // in the round; null for one that is not in it
	Host string `json:"host"` // empty where it is not known
	// Note is what the rendezvous knows of it: why it waits, or that it is lost.
	Note string `json:"note,omitempty"`
	// Workers is how many it has.
	Workers int `json:"workers"`
	// Status is what the node says of itself; null where it has not answered.
	Status *Snapshot `json:"status"`
}

// OfOne is the job as one of its agents sees it.
func OfOne(s Snapshot) Job {
	j := Job{Schema: Schema, Time: s.Time, RunID: s.RunID, Nodes: []Node{{Rank: s.NodeRank, Host: s.Host, Workers: s.LocalWorldSize, Status: &s}}}
	if s.Round != nil {
		j.Round = &Round{Number: *s.Round, Nodes: s.Nodes, WorldSize: s.WorldSize, Restarts: s.Restarts, MaxRestarts: s.MaxRestarts}
	}
	return j
}
