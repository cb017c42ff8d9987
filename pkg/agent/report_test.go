package agent

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs"
)

func failure(rank int, at int64, e procs.Exit) Failure {
	e.LocalRank, e.PID = rank, 1000+rank
	return Failure{Host: "node1", LocalRank: rank, GlobalRank: rank, Exit: e, Time: time.Unix(at, 0).UTC()}
}
