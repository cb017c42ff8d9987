package replica

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestSimulation simulates many groups with faults. To replay one seed:
//
//	ELASTICRUN_SEED=N go test -run TestSimulation ./pkg/coord/replica
func TestSimulation(t *testing.T) {
	if text := os.Getenv("ELASTICRUN_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(replay(seed, planted{}, 1<<30))
		return
	}
	seeds := testenv.Repeat(t, 200, 20000)
	if testenv.Race { // one goroutine simulates a world; make soak has all seeds without the race detector
		seeds /= 5
	}
	bad, seen := simulateSeeds(seeds, planted{})
	t.Logf("%+v", seen)
	if bad != nil {
		t.Fatal(replay(bad.seed, planted{}, 100))
	}
	if min(seen.kills, seen.takeovers, seen.notices, seen.rotations, seen.handovers, seen.snapshots, seen.unknown) == 0 {
		t.Errorf("too little happened: %+v", seen)
	}
}

// simSum adds up what happened in the seeds.
type simSum struct {
	seeds, ticks, acked int
	events
}

func (s *simSum) add(w *world) {
	e := w.check.events
	s.seeds, s.ticks, s.acked = s.seeds+1, s.ticks+w.now, s.acked+len(w.check.acked)
	s.writes, s.confirms, s.changes = s.writes+e.writes, s.confirms+e.confirms, s.changes+e.changes
	s.kills, s.handovers, s.rotations = s.kills+e.kills, s.handovers+e.handovers, s.rotations+e.rotations
	s.notices, s.takeovers = s.notices+e.notices, s.takeovers+e.takeovers
	s.snapshots, s.terms, s.unknown = s.snapshots+e.snapshots, s.terms+e.terms, s.unknown+e.unknown
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
				if w.check.broken != "" && (bad == nil || w.seed < bad.seed) {
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
func replay(seed uint64, plant planted, lines int) string {
	w := newWorld(seed)
	w.tracing, w.plant = true, plant
	w.simulate()
	text := "no violation"
	if w.check.broken != "" {
		text = w.check.broken
	}
	return fmt.Sprintf("seed %d: %s\n%+v\nreplay: ELASTICRUN_SEED=%d go test -run 'TestSimulation$' ./pkg/coord/replica\n%s",
		seed, text, w.cfg, seed, strings.Join(w.trace[max(0, len(w.trace)-lines):], "\n"))
}

// A seed determines the trace, byte for byte.
func TestSimulationIsReplayable(t *testing.T) {
	for seed := range uint64(8) {
		if a, b := replay(seed, planted{}, 1<<30), replay(seed, planted{}, 1<<30); a != b {
			t.Errorf("seed %d gives two traces:\n%s\n\n%s", seed, a, b)
		}
	}
}

// TestSimulationFindsBugs plants one bug after another. Without make soak it begins with a seed that found the bug when
// this table was written.
func TestSimulationFindsBugs(t *testing.T) {
	for _, tt := range []struct {
		name  string
		plant planted
		seed  uint64
	}{
		{"an id is reused", planted{reuseID: true}, 5},
		{"a leader confirms alone", planted{confirmAlone: true}, 303},
		{"a leader leads before it has all writes", planted{leadEarly: true}, 2},
		{"a group is founded twice", planted{twoFounders: true}, 0},
		{"members change in one step", planted{oneStep: true}, 0},
		{"a snapshot is applied without the members", planted{forgetMembers: true}, 0},
		{"a lost snapshot is not sent again", planted{forgetSnapshot: true}, 2},
		{"applied entries stay in memory", planted{keepLog: true}, 0},
		{"a loss is announced as survivable too soon", planted{surviveEarly: true}, 301},
		{"an only voter stores too late", planted{storeLate: true}, 829},
		{"a learner takes over that lacks entries", planted{takeAny: true}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(tt.seed)
			w.plant = tt.plant
			if w.simulate(); w.check.broken == "" || testenv.Whole(t) {
				if w, _ = simulateSeeds(2000, tt.plant); w == nil {
					t.Fatal("not found in 2000 seeds")
				}
			}
			t.Logf("seed %d: %s", w.seed, w.check.broken)
		})
	}
}
