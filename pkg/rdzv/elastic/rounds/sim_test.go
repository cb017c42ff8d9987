package rounds

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestSimulation simulates many jobs with faults. To replay one seed:
//
//	ELASTICRUN_SEED=N go test -run TestSimulation ./pkg/rdzv/elastic/rounds
func TestSimulation(t *testing.T) {
	seen := newSingle.test(t, testenv.Repeat(t, 500, 20000))
	t.Logf("%+v", seen)
}

// newSingle makes worlds whose store is not kept by a group of agents.
var newSingle simBuilder = newWorld

// simBuilder makes the world of a seed.
type simBuilder func(seed uint64) *world

// test simulates the given number of seeds, or only the one that ELASTICRUN_SEED names.
func (build simBuilder) test(t *testing.T, seeds int) (seen simSum) {
	t.Helper()
	if text := os.Getenv("ELASTICRUN_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		w := build(seed)
		w.tracing = true
		w.simulate()
		t.Logf("%+v\n%s", w.cfg, strings.Join(w.trace, "\n"))
		if w.check.broken != nil {
			t.Fatalf("seed %d violates %s: %s", seed, w.check.broken.invariant, w.check.broken.text)
		}
		return seen
	}
	if testenv.Race { // each world has one goroutine, so races are unlikely; make soak runs all seeds without the detector
		seeds /= 5
	}
	bad, seen := build.simulate(seeds, planted{})
	if bad != nil {
		t.Fatal(build.replay(bad.seed, t.Name()))
	}
	return seen
}

// simSum adds up what happened in the seeds.
type simSum struct {
	seeds, events, rounds, charges, terms, sessions, agents, rogue, thaws  int
	places, reports, answers, notes, reruns, unknown, fired, stuck, stores int
	departures, closed, kept                                               int
	simGroupCounts
	endings   map[string]int
	simulated time.Duration
}

func (s *simSum) add(w *world) {
	c := w.check
	if s.endings == nil {
		s.endings = map[string]int{}
	}
	s.simGroupCounts.add(c.groups)
	s.seeds, s.events, s.rounds, s.charges = s.seeds+1, s.events+w.events, s.rounds+c.rounds, s.charges+len(c.charges)
	s.places, s.reports, s.answers = s.places+c.places, s.reports+c.reports, s.answers+c.answers
	s.departures, s.closed = s.departures+c.departures, s.closed+c.close.closed
	s.kept += c.kept
	s.notes, s.reruns = s.notes+c.notes, s.reruns+len(c.past)
	s.unknown, s.fired = s.unknown+c.unknownOverlaps, s.fired+w.watchdogKills
	s.stuck, s.stores = s.stuck+c.stuck, s.stores+w.store.instance
	s.terms, s.sessions, s.agents = s.terms+c.terms, s.sessions+w.sessions, s.agents+w.pids
	s.rogue, s.thaws, s.simulated = s.rogue+c.unguardedOverlaps, s.thaws+c.thawOverlaps, s.simulated+w.now
	if c.outcome != nil {
		s.endings[string(c.outcome.Ending)]++
	}
}

// simulate simulates seeds 0 to n-1 until one violates an invariant. It returns that world; nil if there is none.
func (build simBuilder) simulate(n int, plant planted) (bad *world, seen simSum) {
	var next atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				seed := int(next.Add(1) - 1)
				mu.Lock()
				stop := seed >= n || bad != nil
				mu.Unlock()
				if stop {
					return
				}
				w := build(uint64(seed))
				w.plant = plant
				w.simulate()
				mu.Lock()
				seen.add(w)
				if w.check.broken != nil && (bad == nil || w.seed < bad.seed) {
					bad = w
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return bad, seen
}

// replay simulates a seed again and returns its violation and the end of its trace.
func (build simBuilder) replay(seed uint64, test string) string {
	w := build(seed)
	w.tracing = true
	w.simulate()
	text := "no violation"
	if b := w.check.broken; b != nil {
		text = b.invariant + ": " + b.text
	}
	return fmt.Sprintf(
		"seed %d (%s): %s\nreplay: ELASTICRUN_SEED=%d go test -run '%s$' ./pkg/rdzv/elastic/rounds\n%s",
		seed,
		w.cfg.profile,
		text,
		seed,
		test,
		strings.Join(w.trace[max(0, len(w.trace)-100):], "\n"),
	)
}

// TestSimulationIsReplayable checks that a seed determines the trace, byte for byte.
func TestSimulationIsReplayable(t *testing.T) {
	check := func(build simBuilder, profiles []string) {
		for seed := range uint64(len(profiles)) {
			if a, b := build.replay(seed, ""), build.replay(seed, ""); a != b {
				t.Errorf("seed %d gives two traces:\n%s\n\n%s", seed, a, b)
			}
		}
	}
	check(newSingle, simProfiles)
	check(newGroups, simGroupProfiles)
}
