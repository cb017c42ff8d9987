package agent

import (
	"fmt"
	"slices"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Worker is one instance of a [WorkerSpec]. Its ranks are -1 before the first rendezvous and may change with each
// round.
type Worker struct {
	PID           int // 0 before it is started
	LocalRank     int // among the workers of this node
	GlobalRank    int // among all workers
	RoleRank      int // among all workers of the role
	WorldSize     int // number of all workers
	RoleWorldSize int // number of all workers of the role
}

func (w Worker) ranks() workerlog.Ranks {
	return workerlog.Ranks{Local: w.LocalRank, Global: w.GlobalRank}
}

// String returns the ranks in the form of torch's Worker.
func (w Worker) String() string {
	return fmt.Sprintf("local_rank=%d,global_rank=%d,role_rank=%d,world_size=%d,role_world_size=%d",
		w.LocalRank, w.GlobalRank, w.RoleRank, w.WorldSize, w.RoleWorldSize)
}

// WorkerGroup is the set of workers that an agent manages for one spec.
type WorkerGroup struct {
	Spec           WorkerSpec
	Workers        []Worker // by local rank
	GroupRank      int      // rank of the agent, -1 before the first rendezvous
	GroupWorldSize int      // number of agents, -1 before
	Round          int      // number of the rendezvous round, -1 before
	MasterAddr     string   // of the worker store
	MasterPort     int
	State          WorkerState
}

func newWorkerGroup(spec WorkerSpec) WorkerGroup {
	g := WorkerGroup{Spec: spec, GroupRank: -1, GroupWorldSize: -1, Round: -1}
	for i := range spec.LocalWorldSize {
		g.Workers = append(g.Workers, Worker{LocalRank: i, GlobalRank: -1, RoleRank: -1, WorldSize: -1, RoleWorldSize: -1})
	}
	return g
}

// clone returns a copy that shares nothing mutable.
func (g WorkerGroup) clone() WorkerGroup {
	g.Workers = slices.Clone(g.Workers)
	return g
}

// assign places the group's workers in a round.
func (g *WorkerGroup) assign(r *rdzv.Round) {
	g.GroupRank, g.GroupWorldSize, g.Round = r.Rank, r.WorldSize, r.Number
	g.MasterAddr, g.MasterPort = r.MasterAddr, r.MasterPort
	g.Workers = assignWorkers(r.Assignment, g.Spec.LocalWorldSize)
}

// assignWorkers lays out one node's workers from its assignment.
func assignWorkers(a rdzv.Assignment, localWorldSize int) []Worker {
	workers := make([]Worker, localWorldSize)
	for i := range workers {
		workers[i] = Worker{
			LocalRank:     i,
			GlobalRank:    a.GlobalBase + i,
			RoleRank:      a.RoleBase + i,
			WorldSize:     a.GlobalWorldSize,
			RoleWorldSize: a.RoleWorldSize,
		}
	}
	return workers
}
