package scenario

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/internal/status"
)

// training is a job of four nodes that trains with real torch while one node at a time is out of order. The agents keep
// the store together. When the agent of a node has ended, the test starts another one there.
type training struct {
	*job
	running []*program // the latest agent of each node
	at      round      // the latest round in which all nodes trained
	took    map[string][]standstillTimes
}

// standstillTimes are the seconds from a fault until all workers of the next round had started, and until that round
// had made a step.
type standstillTimes struct{ started, step float64 }

// interruption is a fault that ends the round in which it happens.
type interruption struct {
	name string
	// begin starts the fault on the node of an agent and returns what ends it, or nil if it ends at once.
	begin func(tr *training, a *program) (end func())
	// min and max bound the duration.
	min, max time.Duration
}

var interruptions = []interruption{
	{powerOff, func(_ *training, a *program) func() {
		a.host.PowerOff()
		return a.host.Heal
	}, second, 10 * second},
	{killAgent, leaves(losses[0]), 0, 0},
	{cutLink, func(_ *training, a *program) func() {
		a.host.Cut()
		return a.host.Heal
	}, 2 * keepAlive, 5 * keepAlive},
	{killGuard, leaves(guardKilled), 0, 0},
	{stopAgent, func(_ *training, a *program) func() { return stopped(a.agentPID()) }, 2 * keepAlive, 3 * keepAlive},
	{killBoth, leaves(losses[1]), 0, 0},
	{termAgent, leaves(departures[1]), 0, 0},
}

func leaves(d departure) func(*training, *program) func() {
	return func(tr *training, a *program) func() {
		d.leave(tr.job, a)
		return nil
	}
}

// workerOn returns the start of the round's worker on a host that has one.
func (r round) workerOn(h *hosts.Host) line {
	return r.lines[slices.IndexFunc(r.lines, func(l line) bool { return l.Event == "start" && l.Host == h.Name })]
}

// interrupt disturbs a node, and waits until all nodes train again and any one of them may be lost. If the node is away
// meanwhile, it gets its next agent only when other nodes train.
func (tr *training) interrupt(of interruption, node int, last time.Duration, away bool) {
	tr.t.Helper()
	victim, before, name := tr.running[node], tr.at.number, of.name
	if store := tr.store(); strings.HasPrefix(store.Leader, victim.host.Addr+":") {
		name += ", leader of the store"
	}
	if tr.at.workerOn(victim.host).Rank == 0 {
		name += ", rank 0"
	}
	began := monotonic()
	if end := of.begin(tr, victim); end != nil {
		timer := time.NewTimer(last)
		<-timer.C
		end()
	}
	next := tr.await(before, node, !away, func(r round) bool { return true })
	starts := slices.DeleteFunc(slices.Clone(next.lines), func(l line) bool { return l.Event != "start" })
	tr.took[name] = append(tr.took[name], standstillTimes{starts[len(starts)-1].Time - began, next.steps[0].Time - began})
	tr.at = tr.await(before, node, true, func(r round) bool {
		return r.lines[0].World == len(tr.running) && len(r.steps) >= 2
	})
	testenv.Await(tr.t, "any one node to be dispensable after "+name, healBound, func() bool {
		return tr.store().SurvivesLoss
	})
}

// await returns the first round after the given one that has made a step and is as wanted. Meanwhile only the disturbed
// node's agent may end. It gets another one if again is set.
func (tr *training) await(after, node int, again bool, wanted func(round) bool) round {
	tr.t.Helper()
	var found round
	testenv.Await(tr.t, fmt.Sprintf("a round after %d", after), healBound, func() bool {
		for i, a := range tr.running {
			if !a.ended() {
				continue
			}
			if i != node {
				tr.t.Fatalf("%s has ended, although only node%d was out of order", a.name, node)
			}
			if again {
				tr.running[i] = tr.start(a.host)
			}
		}
		lines, err := readRecordAfter(tr.dir, after)
		if err != nil {
			tr.t.Fatal(err)
		}
		for _, r := range rounds(lines) {
			if len(r.steps) > 0 && wanted(r) {
				found = r
				return true
			}
		}
		return false
	})
	return found
}

// store returns what elasticrun status says about the job's store, or an empty one if it does not answer.
func (tr *training) store() status.Store {
	tr.t.Helper()
	flags := slices.DeleteFunc(slices.Clone(tr.flags), func(flag string) bool {
		return !strings.HasPrefix(flag, "--rdzv-id=") && !strings.HasPrefix(flag, "--rdzv-endpoint=")
	})
	args := append([]string{"status", "--json"}, flags...)
	out, err := tr.lab.Hosts[0].Command(tr.t.Context(), testenv.Binary(tr.t), args...).Output()
	var job status.Job
	if err != nil || json.Unmarshal(out, &job) != nil || job.Store == nil {
		return status.Store{}
	}
	return *job.Store
}

// TestTrainingSurvives disturbs each node of a job with real torch in turn, and then any node in any way. The job must
// go on from its last step each time, without a restart that is charged, and every loss, the last one included, must be
// that of an undisturbed run. It prints the times of standstill. ELASTICRUN_SEED repeats a run.
func TestTrainingSurvives(t *testing.T) {
	t.Parallel()
	testenv.InSoak(t)
	j := newJob(t, 4)
	j.use(ddp)
	j.worker = append(j.worker, "--step-time=0.2")
	j.flags = []string{
		"--nnodes=2:4", ownRunID(), "--max-restarts=0", "--max-node-losses=0", "--min-uptime=0", "--log-level=info",
		"--rdzv-endpoint=node0:29400,node1:29400,node2:29400", lastCall(8 * time.Second),
	}
	tr := &training{job: j, took: map[string][]standstillTimes{}}
	for _, h := range j.nodes() {
		tr.running = append(tr.running, j.start(h))
	}
	tr.at = tr.await(-1, -1, false, func(r round) bool { return r.lines[0].World == 4 })
	tr.running[0].await(survivesLoss)

	seed := anySeed(t)
	t.Logf("ELASTICRUN_SEED=%d repeats this run", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for node := range tr.running {
		tr.interrupt(interruptions[0], node, 0, true)
	}
	for i := range testenv.Repeat(t, 2, 200) {
		of := interruptions[i%len(interruptions)]
		last := of.min + time.Duration(random.Int64N(int64(of.max-of.min)+1))
		tr.interrupt(of, random.IntN(len(tr.running)), last, random.IntN(2) == 0)
	}
	j.finish()
	tr.end()
}

// end waits for the job's end, and checks the record.
func (tr *training) end() {
	tr.t.Helper()
	for _, a := range tr.running {
		if got := a.code(); got != 0 {
			tr.t.Errorf("%s ended with %d", a.name, got)
		}
	}
	tr.lab.NothingLeft(20 * time.Second)
	record := tr.record()
	steps := lastStep(record)
	losses := tr.trainer.undisturbed(tr.t, steps)
	for _, bad := range check(record, expected{worlds: worldsWithSteps(record), losses: losses}) {
		tr.t.Error(bad)
	}
	tr.t.Logf("%d rounds, %d steps; last loss %v, undisturbed %v", len(rounds(record)), steps, lossAt(record, steps),
		losses[steps])
	for _, name := range slices.Sorted(maps.Keys(tr.took)) {
		var started, step []float64
		for _, s := range tr.took[name] {
			started, step = append(started, s.started), append(step, s.step)
		}
		slices.Sort(started)
		slices.Sort(step)
		n := len(started)
		tr.t.Logf("%-60s %2d times; workers started after %.2f s (median) and %.2f s (longest), first step after %.2f and %.2f s",
			name, n, started[n/2], started[n-1], step[n/2], step[n-1])
	}
}

func lossAt(lines []line, step int) float64 {
	for _, l := range lines {
		if l.Event == "step" && l.Step == step {
			return l.Loss
		}
	}
	return 0
}
