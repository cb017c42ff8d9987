package agent

import (
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// worker is one instance of a [WorkerSpec] in one round.
type worker struct {
	PID           int // 0 before it is started
	LocalRank     int // among the workers of this node
	GlobalRank    int // among all workers
	RoleRank      int // among all workers of the role
	WorldSize     int // number of all workers
	RoleWorldSize int // number of all workers of the role
}

func (w worker) ranks() workerlog.Ranks {
	return workerlog.Ranks{Local: w.LocalRank, Global: w.GlobalRank}
}

// assignWorkers lays out one node's workers from its assignment.
func assignWorkers(a rdzv.Assignment, localWorldSize int) []worker {
	workers := make([]worker, localWorldSize)
	for i := range workers {
		workers[i] = worker{
			LocalRank:     i,
			GlobalRank:    a.GlobalBase + i,
			RoleRank:      a.RoleBase + i,
			WorldSize:     a.GlobalWorldSize,
			RoleWorldSize: a.RoleWorldSize,
		}
	}
	return workers
}
