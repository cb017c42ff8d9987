package elastic

import (
	"context"
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// CheckFinished describes in one line what would become of an agent of node n that came to a finished run now; line is
// empty if the run has not finished or does not exist. refusal is a *FinishedError if the leader would refuse the
// agent. CheckFinished only reads from store; err is one of the store's errors.
func CheckFinished(
	ctx context.Context, store coord.Store, runID string, n rounds.Node,
) (line string, refusal, err error) {
	d := &leaderDriver{store: store, prefix: rounds.PrefixOf(runID)}
	saved, err := d.readState(ctx)
	if err != nil || saved.Outcome == nil {
		return "", nil, err
	}
	ending, late := saved.Outcome.Ending, saved.History.Finished.Lateness(time.Now())
	line = fmt.Sprintf("run %q already finished (%s)", runID, late.Describe(ending))
	verdict := saved.History.Finished.JudgeArrival(n, ending)
	if rounds.FindPastRun(saved.History.Past, &rounds.Report{Node: n}) != nil {
		verdict = rounds.LearnResult
	}
	switch verdict {
	case rounds.StartRerun:
		return line + "; this launch would start it again", nil, nil
	case rounds.LearnResult:
		return line + "; this launch would learn its result and start nothing", nil, nil
	case rounds.RefuseArrival:
	}
	return line, &rounds.FinishedError{RunID: runID, Ending: ending, Late: *late}, nil
}
