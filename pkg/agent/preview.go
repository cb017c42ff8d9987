package agent

import (
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Imagined is a round that nobody has decided, of which it is asked how workers would be started in it.
type Imagined struct {
	Round *rdzv.Round
	RunID string
	// Hostname is this node's.
	Hostname string
	// Env is the environment that workers get beneath torch's variables.
	Env []string
	// Files are the log paths of each worker, by local rank.
	Files []workerlog.LogFiles
}

// Preview says how this node's workers would be started in a round, by local rank, and starts nothing. Its errors are those that a start would have.
func Preview(spec WorkerSpec, in Imagined) ([]procs.Spec, error) {
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
