package elastic

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
//	ELASTICRUN_SEED=N go test -run TestSimulation ./pkg/rdzv/elastic
func TestSimulation(t *testing.T) {
	if text := os.Getenv("ELASTICRUN_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(seed)
		w.tracing = true
		w.simulate()
		t.Logf("%+v\n%s", w.cfg, strings.Join(w.trace, "\n"))
		if w.check.broken != nil {
			t.Fatalf("seed %d violates %s: %s", seed, w.check.broken.invariant, w.check.broken.text)
		}
		return
	}
	seeds := testenv.Repeat(t, 500, 20000)
	if testenv.Race { // one goroutine simulates a world; make soak has all seeds without the race detector
		seeds /= 5
	}
	bad, seen := simulateSeeds(seeds, planted{})
	t.Logf("%+v", seen)
	if bad != nil {
		t.Fatal(replay(bad.seed))
	}
}

// simSum adds up what happened in the seeds.
type simSum struct {
	seeds, events, rounds, charges, terms, sessions, agents, rogue, thaws  int
	places, reports, answers, notes, reruns, unknown, fired, stuck, stores int
	departures, closed, kept                                               int
	endings                                                                map[string]int
	simulated                                                              time.Duration
}

func (s *simSum) add(w *world) {
	c := w.check
	if s.endings == nil {
		s.endings = map[string]int{}
	}
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

// simulateSeeds simulates seeds 0 to n-1 until one violates an invariant, and returns that one.
func simulateSeeds(n int, plant planted) (bad *world, seen simSum) {
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
				w := newWorld(uint64(seed))
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
func replay(seed uint64) string {
	w := newWorld(seed)
	w.tracing = true
	w.simulate()
	text := "no violation"
	if b := w.check.broken; b != nil {
		text = b.invariant + ": " + b.text
	}
	return fmt.Sprintf(
		"seed %d (%s): %s\nreplay: ELASTICRUN_SEED=%d go test -run 'TestSimulation$' ./pkg/rdzv/elastic\n%s",
		seed,
		w.cfg.profile,
		text,
		seed,
		strings.Join(w.trace[max(0, len(w.trace)-100):], "\n"),
	)
}

// A seed determines the trace, byte for byte.
func TestSimulationIsReplayable(t *testing.T) {
	for seed := range uint64(len(simProfiles)) {
		if a, b := replay(seed), replay(seed); a != b {
			t.Errorf("seed %d gives two traces:\n%s\n\n%s", seed, a, b)
		}
	}
}
