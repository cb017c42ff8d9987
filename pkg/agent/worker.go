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

// WorkerGroup is the set of workers that an agent manages for one spec, like WorkerGroup of torch 2.14
// (torch/distributed/elastic/agent/server/api.py).
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

// WorkerGroup returns a copy of the worker group, like get_worker_group of torch's SimpleElasticAgent. It may be called
// at any time.
func (a *Agent) WorkerGroup() WorkerGroup {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.shownGroup
	g.Workers = slices.Clone(g.Workers)
	return g
}

// showGroup makes the group's current state visible to WorkerGroup.
func (a *Agent) showGroup() {
	g := WorkerGroup{
		Spec: a.opts.Spec, Workers: slices.Clone(a.workers), GroupRank: a.groupRank, GroupWorldSize: a.groupWorldSize,
		Round: -1, State: a.state,
	}
	if a.round != nil {
		g.Round, g.MasterAddr, g.MasterPort = a.round.Number, a.round.MasterAddr, a.round.MasterPort
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shownGroup = g
}

// unassignedWorkers returns workers that are in no round yet.
func unassignedWorkers(localWorldSize int) []Worker {
	workers := make([]Worker, localWorldSize)
	for i := range workers {
		workers[i] = Worker{LocalRank: i, GlobalRank: -1, RoleRank: -1, WorldSize: -1, RoleWorldSize: -1}
	}
	return workers
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
