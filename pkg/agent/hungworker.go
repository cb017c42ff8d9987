package agent

import (
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/failure"
)

// hungWorker is a worker that counts as failed although it has not ended. The agent invents its exit.
type hungWorker struct {
	localRank int
	asleep    bool          // it is in an uninterruptible sleep; otherwise it has written its error file and does not end
	after     time.Duration // how long it may do that
	where     string        // where it is, in a few words; empty if not known
}

// is reports whether h, which may be nil, is the worker with this local rank.
func (h *hungWorker) is(localRank int) bool { return h != nil && h.localRank == localRank }

// explain adds to the findings about the worker that it hangs. The exit code is invented, so it is no evidence.
func (h *hungWorker) explain(findings []failure.Finding, at time.Time) []failure.Finding {
	findings = slices.DeleteFunc(findings, func(x failure.Finding) bool { return x.Kind == failure.Exited })
	if h.asleep {
		return slices.Insert(findings, 0, failure.Finding{
			Kind: failure.Uninterruptible, Time: at,
			Text: "was in an uninterruptible sleep in the kernel (state D) for " + seconds.Format(h.after),
		})
	}
	hang := failure.Finding{
		Kind: failure.Stuck, Time: at,
		Text: "had written its error file, and did not end within " + seconds.Format(h.after) + h.wasAt(),
	}
	i := len(findings)
	if i > 0 && findings[0].Kind != failure.ErrorFile && findings[0].Kind.Grade() > hang.Kind.Grade() {
		i = 0 // half an error file, and only weaker evidence
	}
	return slices.Insert(findings, i, hang)
}

// wasAt continues a sentence with where the worker was, if that is known.
func (h *hungWorker) wasAt() string {
	if h.where == "" {
		return ""
	}
	return ": it was " + h.where
}
