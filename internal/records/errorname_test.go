package records

import (
	"testing"

	"github.com/elasticrun/elasticrun/internal/exitcode"
)

// The error file blames a defect of elasticrun only if there was one.
func TestErrorName(t *testing.T) {
	for reason, want := range map[exitcode.Reason]string{
		exitcode.ReasonPreempted:     "PreemptedError",
		exitcode.ReasonHang:          "ChildFailedError",
		exitcode.ReasonStopRequested: "ChildFailedError",
		exitcode.ReasonFinalCode:     "ChildFailedError",
		exitcode.ReasonSameFailure:   "ChildFailedError",
		exitcode.ReasonNoProgress:    "ChildFailedError",
		exitcode.ReasonClosed:        "ClosedError",
		exitcode.ReasonInternal:      "InternalError",
	} {
		if got := errorName(reason); got != want {
			t.Errorf("%s: %s, want %s", reason, got, want)
		}
	}
}
