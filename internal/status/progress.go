package status

import (
	"context"
	"slices"

	"github.com/elasticrun/elasticrun/internal/stacks"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
)

// AskStacks asks the agents of a round for their workers' stacks, on behalf of the agent with that node rank. Nil says
// that nobody was asked. [elastic.Handler] has such a method.
type AskStacks func(ctx context.Context, round, rank int) *elastic.Snapshot

// Progress says in one line which workers of this node have finished and where the others are; "" if none runs.
func (o *Observer) Progress(ctx context.Context) string {
	var done []int
	for _, w := range o.tracker.Snapshot().Workers {
		if w.State == WorkerSucceeded {
			done = append(done, w.Rank)
		}
	}
	running := slices.DeleteFunc(o.Stacks(ctx, false), stacks.Worker.Ended)
	if ctx.Err() != nil {
		return ""
	}
	return stacks.Progress(done, running, nil)
}

// JobProgress is Progress for the workers of all nodes, by the replies of their agents within 4 s. It returns "" if the
// agents were not asked, such as before the first round or if another node asks them.
func (o *Observer) JobProgress(ctx context.Context, ask AskStacks) string {
	s := o.tracker.Snapshot()
	if ask == nil || s.Round == nil || s.NodeRank == nil {
		return ""
	}
	bounded, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	seen := ask(bounded, *s.Round, *s.NodeRank)
	if seen == nil || ctx.Err() != nil {
		return ""
	}
	return progressOf(*seen)
}

// progressOf says what the agents of the round have replied. Global ranks follow the ranks of the nodes.
func progressOf(s elastic.Snapshot) string {
	var done []int
	var running []stacks.Worker
	var silent []string
	first := 0
	for _, a := range s.Agents {
		if a.Rank < 0 {
			continue
		}
		workers, err := UnpackStacks(a.Stacks)
		switch {
		case a.Departed:
		case err != nil:
			silent = append(silent, a.Host)
			first += a.Nproc
			continue
		}
		workers = slices.DeleteFunc(workers, stacks.Worker.Ended)
		for rank := first; rank < first+a.Nproc; rank++ {
			if !slices.ContainsFunc(workers, func(w stacks.Worker) bool { return w.Rank == rank }) {
				done = append(done, rank)
			}
		}
		running = append(running, workers...)
		first += a.Nproc
	}
	return stacks.Progress(done, running, silent)
}
