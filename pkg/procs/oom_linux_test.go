package procs

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// ownOOM returns this process's own value. Workers of these tests wait until their value differs, because it is set
// after their start.
func ownOOM(t *testing.T) int {
	t.Helper()
	own, ok := oomScoreAdj("self")
	if !ok || own >= maxOOM {
		testenv.Missing(t, "needs an oom_score_adj of its own below %d, and has %d", maxOOM, own)
	}
	return own
}

const untilRaised = `while [ "$(cat /proc/self/oom_score_adj)" = %d ]; do :; done; `

// The kernel kills a worker, or a process that a worker started, before the agent, whatever the agent's own value is.
func TestWorkersGoFirstWhenMemoryRunsOut(t *testing.T) {
	own := ownOOM(t)
	spec := shell(t, 0, fmt.Sprintf(untilRaised, own)+`sh -c 'cat /proc/self/oom_score_adj'`)
	g := startGroup(t, spec)
	if got, want := awaitLine(t, spec), strconv.Itoa(min(own+workerOOM, maxOOM)); got != want {
		t.Errorf("a worker's child has oom_score_adj %s beside the agent's %d, want %s", got, own, want)
	}
	<-g.Exits()
	stopGroup(t, g, orderly)
	if now, _ := oomScoreAdj("self"); now != own {
		t.Errorf("the agent's own went from %d to %d", own, now)
	}
}

// A worker that sets its own value before the agent does keeps it.
func TestOwnOOMScoreIsKept(t *testing.T) {
	own := ownOOM(t)
	theirs := min(own+workerOOM+1, maxOOM)
	spec := shell(t, 0, fmt.Sprintf(untilRaised+`echo %d >/proc/self/oom_score_adj; echo; exec sleep 100`, own, theirs))
	g := startGroup(t, spec)
	awaitLine(t, spec)
	pid := g.PIDs()[0]
	preferForOOM(pid)
	if got, _ := oomScoreAdj(strconv.Itoa(pid)); got != theirs {
		t.Errorf("oom_score_adj %d, want the worker's own %d", got, theirs)
	}
	stopGroup(t, g, orderly)
}
