package elastic

import (
	"context"
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// CheckFinished describes in one line what would become of an agent of node n that came to a finished run now; line is
// empty if the run has not finished or does not exist. refusal is a *FinishedError if the leader would refuse the
// agent. CheckFinished only reads from store; err is one of the store's errors.
func CheckFinished(ctx context.Context, store coord.Store, runID string, n Node) (line string, refusal, err error) {
	d := &leaderDriver{store: store, prefix: prefixOf(runID)}
	saved, err := d.readState(ctx)
	if err != nil || saved.outcome == nil {
		return "", nil, err
	}
	ending, late := saved.outcome.Ending, saved.history.finished.lateness(time.Now())
	line = fmt.Sprintf("run %q already finished (%s)", runID, late.Describe(ending))
	verdict := saved.history.finished.judgeArrival(n, ending)
	if findPastRun(saved.history.past, &Report{Node: n}) != nil {
		verdict = learnResult
	}
	switch verdict {
	case startRerun:
		return line + "; this launch would start it again", nil, nil
	case learnResult:
		return line + "; this launch would learn its result and start nothing", nil, nil
	case refuseArrival:
	}
	return line, &FinishedError{RunID: runID, Ending: ending, Late: *late}, nil
}
