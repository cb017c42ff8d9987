package rounds

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// simLoss is the loss of a node's agent, guard or power.
type simLoss struct {
	node int
	at   time.Duration
	kind string
	back time.Duration // how long after that the node comes back; 0: never
}

// newLossWorld returns a world in which nodes are lost one after the other, and nothing else goes wrong. The store has
// at most the given number of voters. The losses do not depend on that number.
func newLossWorld(seed uint64, voters int) *world {
	w := newGroupWorld(seed)
	c := &w.cfg
	c.voters, c.profile, c.gap, c.failures, c.success, c.spikes, c.resyncs = voters, "losses", 0, 0, 0, 0, 0
	c.job.MaxNodeLosses, c.job.Grow, c.joins = 1000, GrowNow, time.Second
	w.preempt.at = -1
	rng := rand.New(rand.NewPCG(seed, 9))
	c.job.Min = 1 + rng.IntN(2)
	c.job.Multiple = 0
	for _, n := range w.nodes {
		n.job = c.job
	}
	at := 15 * time.Second
	for range 1 + rng.IntN(5) {
		l := simLoss{node: rng.IntN(c.nodes), at: at, kind: []string{"agent", "agent and guard", "power", "term"}[rng.IntN(4)]}
		if rng.IntN(3) > 0 {
			l.back = time.Duration(1+rng.IntN(5000)) * time.Millisecond
		}
		w.after(at, func() { w.lose(l) })
		at += l.back + c.job.Rejoin + 2*c.ttl + settleTime
	}
	c.faults = at
	return w
}

// lose loses a node.
func (w *world) lose(l simLoss) {
	n := w.nodes[l.node]
	if n.proc == nil || n.proc.exited {
		return
	}
	w.logf("%s is lost: %s, back after %v", n.name, l.kind, l.back)
	n.gone = l.back == 0
	again := func() { n.restartAfter(l.back) }
	switch l.kind {
	case "agent":
		w.killBefore(n, again)
	case "agent and guard":
		n.killBoth()
		again()
	case "power":
		n.powerOff()
		again()
	case "term":
		n.proc.onLoop(n.proc.terminate)
	}
}

// survives reports whether the job of a world succeeds.
func (w *world) survives() bool {
	w.simulate()
	o := w.check.outcome
	return o != nil && (o.Ending == rdzv.EndSucceeded || o.Ending == rdzv.EndClosed)
}

// TestSimulationOfLosses compares a store that three agents keep with one that an agent keeps alone: each job that
// survives the losses of its nodes with the latter survives them with the former.
func TestSimulationOfLosses(t *testing.T) {
	var alone, together int
	seeds := testenv.Repeat(t, 150, 20000)
	if testenv.Race { // each world has one goroutine, so races are unlikely; make soak runs all seeds without the detector
		seeds /= 10
	}
	for seed := range uint64(seeds) {
		one, three := newLossWorld(seed, 1), newLossWorld(seed, 3)
		survived := one.survives()
		if survived {
			alone++
		}
		switch {
		case three.survives():
			together++
		case survived:
			w := newLossWorld(seed, 3)
			w.tracing = true
			w.simulate()
			t.Fatalf("seed %d: with one voter the job survives, with three it does not: %+v, %v\n%s", seed,
				three.check.outcome, w.check.broken, strings.Join(w.trace[max(0, len(w.trace)-120):], "\n"))
		}
	}
	t.Logf("of all jobs %d survive with one voter, %d with three", alone, together)
	if together <= alone {
		t.Error("three voters survive no loss that one does not")
	}
}
