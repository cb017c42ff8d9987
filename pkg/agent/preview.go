package agent

import (
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Hypothetical is a round that was not decided, for [Preview].
type Hypothetical struct {
	Round *rdzv.Round
	RunID string
	// Hostname is this node's.
	Hostname string
	// Env is the environment of the workers; torch's variables are set over it.
	Env []string
	// Files are the log paths of each worker, by local rank.
	Files []workerlog.LogFiles
}

// Preview returns how this node's workers would be started in a round, by local rank. It starts nothing. Its errors are
// those of a real start.
func Preview(spec WorkerSpec, in Hypothetical) ([]procs.Spec, error) {
	group := newWorkerGroup(spec)
	group.assign(in.Round)
	specs := make([]procs.Spec, len(group.Workers))
	for i, w := range group.Workers {
		files := in.Files[i]
		var err error
		if specs[i], err = startSpec(envInput{
			base: in.Env, spec: spec, group: group, worker: w, round: in.Round,
			runID: in.RunID, restartCount: in.Round.Restarts, errorFile: files.Error, tracePrefix: files.TracePrefix,
		}, in.Hostname, files); err != nil {
			return nil, err
		}
	}
	return specs, nil
}
