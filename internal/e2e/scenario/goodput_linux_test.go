package scenario

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/goodput"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// TestGoodput runs jobs on three hosts. Workers fail and agents are killed at random times, including the agent that
// leads. The test compares the goodput that the job reports with what its workers have recorded.
func TestGoodput(t *testing.T) {
	t.Parallel()
	seed := anySeed(t)
	t.Logf("ELASTICRUN_SEED=%d repeats the times and nodes", seed)
	rng := rand.New(rand.NewPCG(seed, 20))
	histories := testenv.Repeat(t, 1, goodputHistories)
	limit := 0.1 // of all worker-seconds: other tests delay agents and workers
	if histories >= goodputHistories {
		limit = fullLimit
	}
	for i := range histories {
		goodputHistory(t, rng, i, limit)
	}
}

const (
	// goodputHistories is the number of jobs of a full run, for which the machine should be idle.
	goodputHistories = 100
	fullLimit        = 0.03
	// goodputSteps is how many steps a job has. One takes 20 to 60 ms.
	goodputSteps = 500
)

func goodputHistory(t *testing.T, rng *rand.Rand, i int, limit float64) {
	t.Helper()
	j := newJob(t, 3)
	shows := []string{"beat", "print"}[i%2]
	j.worker = []string{workerScript(t, "goodput.py"), j.dir, fmt.Sprint(goodputSteps), shows}
	addr := func(h int) string { return j.lab.Hosts[h].Addr + ":29400" }
	j.flags = []string{
		"--nnodes=2:3", "--nproc-per-node=2", "--rdzv-id=job", "--max-restarts=100", "--min-uptime=0", "--max-node-losses=0",
		"--log-level=info",
		"--rdzv-conf=last_call_timeout=2,join_settle=0.2," + keepAliveConf, "--step-pattern", `^step (\d+)`,
		"--rdzv-endpoint=" + addr(0) + "," + addr(1) + "," + addr(2), "--report=" + j.dir + "/${hostname}.json",
		"--event-log=" + j.dir + "/${hostname}.events",
	}
	j.startAll(j.lab.Hosts...)
	current := slices.Clone(j.agents)
	for round := range 4 { // they fail in the first rounds, if these are not ended before
		if rng.IntN(3) > 0 {
			name := fmt.Sprintf("fail.%d.%d", round, rng.IntN(4))
			at := fmt.Sprint(0.2 + 3*rng.Float64())
			if err := os.WriteFile(filepath.Join(j.dir, name), []byte(at), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	killed := make([][]time.Time, 3) // by host
	for range 1 + rng.IntN(3) {
		<-time.After(time.Second + time.Duration(rng.Int64N(int64(3*time.Second))))
		h := rng.IntN(3)
		for _, a := range current { // else the job may lose its store
			testenv.Await(t, "the store to survive a loss", bound, func() bool {
				return a.ended() || strings.Contains(a.text(), survivesLoss)
			})
		}
		if current[h].ended() {
			break
		}
		killed[h] = append(killed[h], time.Now())
		signalTo(current[h].agentPID(), syscall.SIGKILL)
		current[h].code()
		current[h] = j.start(j.lab.Hosts[h])
	}
	total := 0.0
	var reports []report.Report
	for h, a := range current {
		if code := a.code(); code != 0 {
			t.Errorf("%s ended with %d", a.name, code)
		}
		var r report.Report
		data, err := os.ReadFile(filepath.Join(j.dir, j.lab.Hosts[h].Name+".json"))
		if err == nil {
			err = json.Unmarshal(data, &r)
		}
		if err != nil || r.Goodput == nil {
			t.Fatalf("%s: the report of %s has no goodput: %v", shows, a.name, err)
		}
		reports = append(reports, r)
		total += 2 * launched(t, filepath.Join(j.dir, j.lab.Hosts[h].Name+".events"), killed[h])
	}
	for _, r := range reports[1:] {
		if *r.Goodput != *reports[0].Goodput {
			t.Errorf("not equal on all nodes: %+v and %+v", *r.Goodput, *reports[0].Goodput)
		}
	}
	want, err := readGoodput(j.dir)
	if err != nil {
		t.Fatal(err)
	}
	got := *reports[0].Goodput
	part, worst := compareGoodput(t, got, want, total, limit)
	share := math.Abs(got.Running-want.Running) / total
	t.Logf("%s: %s; of %.1f worker-seconds at most %.2f %% wrong (%s), the share %.2f %%", shows, got.Details(), total,
		100*worst, part, 100*share)
}

// launched returns for how many seconds the launchers of a host lived. killed are the times at which launchers were
// killed.
func launched(t *testing.T, file string, killed []time.Time) (sum float64) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var began time.Time
	for line := range strings.Lines(string(data)) {
		var e events.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		switch e.Kind {
		case events.KindLauncherStarted:
			if !began.IsZero() {
				sum += killed[0].Sub(began).Seconds()
				killed = killed[1:]
			}
			began = e.Time
		case events.KindEnd:
			sum += e.Time.Sub(began).Seconds()
		}
	}
	return sum
}

// compareGoodput checks each part of the goodput that workers can know. limit is a share of the total time.
func compareGoodput(t *testing.T, got, want goodput.Goodput, total, limit float64) (part string, worst float64) {
	t.Helper()
	if !got.Steps {
		t.Errorf("steps are not known: %+v", got)
	}
	// A launcher is not in the job yet while it looks for the one that leads now.
	if diff := math.Abs(got.Total()-total) / total; diff > 3*limit {
		t.Errorf("all parts are %.2f worker-seconds, and the launchers lived %.2f", got.Total(), total)
	}
	parts := map[string][2]float64{"startup": {got.Startup, want.Startup}}
	if got.LostUnknown && limit > fullLimit { // a delayed worker was behind one that was killed with its agent
		parts["running and lost"] = [2]float64{got.Running + got.Lost, want.Running + want.Lost}
	} else {
		parts["running"], parts["lost"] = [2]float64{got.Running, want.Running}, [2]float64{got.Lost, want.Lost}
	}
	for name, parts := range parts {
		diff := math.Abs(parts[0]-parts[1]) / total
		if diff > worst {
			part, worst = name, diff
		}
		if diff > limit && (name != "startup" || limit <= fullLimit || diff > 3*limit) { // processes start late, too
			t.Errorf("%s is %.2f worker-seconds, of the workers %.2f: %.1f %% of all wrong",
				name, parts[0], parts[1], 100*diff)
		}
	}
	return part, worst
}

// goodputRound is what the workers of one round have recorded.
type goodputRound struct {
	started []float64
	ended   map[int]float64 // by rank: its last event
	first   float64         // when the first step was done; 0 for never
	firstOf int             // that step
	done    map[int]float64 // when a step was done first
	end     float64         // when the first worker failed, or was gone without an end
	broken  bool
}

// readGoodput computes from the workers' records how they used their time.
func readGoodput(dir string) (g goodput.Goodput, err error) {
	rounds := map[int]*goodputRound{}
	files, _ := filepath.Glob(filepath.Join(dir, "worker.*"))
	for _, name := range files {
		var round, rank int
		if _, err := fmt.Sscanf(filepath.Base(name), "worker.%d.%d", &round, &rank); err != nil {
			return g, err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return g, err
		}
		if rounds[round] == nil {
			rounds[round] = &goodputRound{ended: map[int]float64{}, done: map[int]float64{}, end: math.Inf(1)}
		}
		rounds[round].read(string(data), rank)
	}
	var before []*goodputRound
	for _, number := range slices.Sorted(maps.Keys(rounds)) {
		r := rounds[number]
		for _, at := range r.ended {
			if r.broken {
				at = min(at, r.end)
			}
			if r.first == 0 {
				continue
			}
			g.Running += max(0, at-r.first)
		}
		for _, at := range r.started {
			until := r.first
			if until == 0 {
				until = r.end
			}
			g.Startup += max(0, until-at)
		}
		if r.first > 0 {
			lost := doneAgain(before, r.firstOf)
			g.Lost, g.Running = g.Lost+lost, g.Running-lost
			before = append(before, r)
		}
	}
	g.Steps = true
	return g, nil
}

// read adds the record of one worker.
func (r *goodputRound) read(text string, rank int) {
	finished := false
	for line := range strings.Lines(text) {
		var at float64
		var event string
		var step int
		if _, err := fmt.Sscan(line, &at, &event, &step); err != nil {
			continue
		}
		r.ended[rank] = at
		switch event {
		case "start":
			r.started = append(r.started, at)
		case "step":
			if r.first == 0 || at < r.first {
				r.first, r.firstOf = at, step
			}
			if was, ok := r.done[step]; !ok || at < was {
				r.done[step] = at
			}
		case "done":
			finished = true
		}
	}
	if !finished {
		r.broken, r.end = true, min(r.end, r.ended[rank])
	}
}

// doneAgain returns the time that earlier rounds spent on steps that a round which begins with step first does again.
// It takes that time from those rounds.
func doneAgain(before []*goodputRound, first int) (lost float64) {
	for _, r := range slices.Backward(before) {
		kept, ok := r.done[first-1]
		if !ok {
			kept = r.first
		}
		if kept < r.end {
			lost += float64(len(r.started)) * (r.end - kept)
			r.end = kept
		}
		if ok {
			break
		}
	}
	return lost
}
