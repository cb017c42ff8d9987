package elastic

import (
	"context"
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// Foresee says in one line what would become of an agent of node n if it came to the run now and the run has finished; empty where it has not, or is not
// there. refusal is a *FinishedError where the agent would be refused. The store is only read; err is one of its errors.
func Foresee(ctx context.Context, store coord.Store, runID string, n Node) (line string, refusal, err error) {
	l := &Lead{store: store, prefix: prefixOf(runID)}
	f, err := l.find(ctx)
	if err != nil || f.outcome == nil {
		return "", nil, err
	}
	ended := f.rerun.run.late(time.Now())
	line = fmt.Sprintf("run %q already finished (%s)", runID, ended.Describe(f.outcome.Ending))
	what := f.rerun.run.judge(n, f.outcome.Ending)
	if pastOf(f.rerun.past, &Report{Node: n}) != nil {
		what = learns
	}
	switch what {
	case anew:
		return line + "; this launch would begin it anew", nil, nil
	case learns:
		return line + "; this launch would learn its result and start nothing", nil, nil
	case refused:
	}
	return line, &FinishedError{RunID: runID, Ending: f.outcome.Ending, Late: *ended}, nil
}
