package status

import (
	"cmp"
	"math"
	"slices"

	"github.com/elasticrun/elasticrun/pkg/goodput"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// Job is the status of a job, as its agents report it.
type Job struct {
	Schema int         `json:"schema"`
	Time   report.Time `json:"time"`
	RunID  string      `json:"run_id"`
	// Round is the latest decided round; null before the first.
	Round *Round `json:"round"`
	// Result says how the job has ended, Why gives the reason. Both are empty while it runs.
	Result string `json:"result,omitempty"`
	Why    string `json:"why,omitempty"`
	// Goodput is how all workers of the job have used their time: as recorded at its end, else as the first of Nodes that
	// knows it reports it; null before the first round.
	Goodput *goodput.Goodput `json:"goodput,omitempty"`
	// Store says who keeps the job's coordination store; null if that is not known, or the agents do not keep it together.
	Store *Store `json:"store,omitempty"`
	// Nodes holds the nodes of the round in rank order, then those that are in no round.
	Nodes []Node `json:"nodes"`
}

// Store is a coordination store that the agents keep together.
type Store struct {
	// Voters are the addresses of the agents that keep it, of which Leader serves it.
	Voters []string `json:"voters"`
	Leader string   `json:"leader"`
	// SurvivesLoss says that any one node may be lost now.
	SurvivesLoss bool `json:"survives_loss"`
	// Heirs are the addresses of the agents that can take over from the only voter if its agent is killed.
	Heirs []string `json:"heirs,omitempty"`
	// Problem says why the loss of the leader's node may end the job. If that node keeps the store alone, Problem is a
	// text that follows the node's name; else it names the voters that do not reach each other. It is "" until the problem
	// has lasted for a while.
	Problem string `json:"problem,omitempty"`
}

// StoreOf returns what elastic knows about a store.
func StoreOf(s *elastic.StoreState) *Store {
	return &Store{Voters: s.Voters, Leader: s.Leader, SurvivesLoss: s.SurvivesLoss, Heirs: s.Heirs, Problem: s.Problem}
}

// Round is a decided round.
type Round struct {
	Number      int `json:"number"`
	Nodes       int `json:"nodes"`
	WorldSize   int `json:"world_size"`
	Restarts    int `json:"restarts"`
	MaxRestarts int `json:"max_restarts"`
}

// Node is a node of a job.
type Node struct {
	Rank *int   `json:"rank"` // in the round; null if the node is not in it
	Host string `json:"host"` // empty if unknown
	// Note is what the rendezvous knows about the node: why it waits, or that it is lost.
	Note string `json:"note,omitempty"`
	// Left says that all workers of the node have exited with 0, and that it has left the exit barrier.
	Left bool `json:"left,omitempty"`
	// Workers is the number of its workers.
	Workers int `json:"workers"`
	// Status is what the node's agent reports; null if it has not replied.
	Status *Snapshot `json:"status"`
}

// OfAgent returns the status of a job as one of its agents sees it.
func OfAgent(s Snapshot) Job { return OfAgents([]Snapshot{s}) }

// OfAgents returns the status of a job as some of its agents see it, at least one. The round is that of the agent that
// knows the latest.
func OfAgents(all []Snapshot) Job {
	j := Job{Schema: Schema, Time: all[0].Time, RunID: all[0].RunID, Nodes: []Node{}}
	for _, s := range all {
		j.Store = cmp.Or(j.Store, s.Store)
		j.Nodes = append(j.Nodes, Node{Rank: s.NodeRank, Host: s.Host, Workers: s.LocalWorldSize, Status: &s})
		if s.Round != nil && (j.Round == nil || *s.Round > j.Round.Number) {
			j.Round = &Round{
				Number: *s.Round, Nodes: s.Nodes, WorldSize: s.WorldSize, Restarts: s.Restarts, MaxRestarts: s.MaxRestarts,
			}
		}
	}
	slices.SortStableFunc(j.Nodes, func(a, b Node) int { return cmp.Compare(a.order(), b.order()) })
	j.Goodput = j.goodput()
	return j
}

// goodput returns the Goodput of the first node that knows it. Nodes in the round know the latest one.
func (j *Job) goodput() *goodput.Goodput {
	for _, n := range j.Nodes {
		if n.Status != nil && n.Status.Goodput != nil {
			return n.Status.Goodput
		}
	}
	return nil
}

// order sorts nodes by rank; those in no round come last.
func (n Node) order() int {
	if n.Rank == nil {
		return math.MaxInt
	}
	return *n.Rank
}
