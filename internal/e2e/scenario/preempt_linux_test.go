package scenario

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// preempted is the exit code of a preempted job.
const preempted = 79

// TestPreemption signals one of four nodes. All workers save the same step, all nodes end with the code that means
// "again", and the next run goes on from that step. Nothing is charged.
func TestPreemption(t *testing.T) {
	t.Parallel()
	j := newJob(t, 4)
	j.useTorchInSoak()
	j.worker = append(j.worker, "--stop-on-signal")
	j.flags = []string{
		"--nnodes=4", "--nproc-per-node=1", "--rdzv-id=job", "--preempt-signals=USR1",
		"--rdzv-endpoint=" + j.lab.Hosts[0].Addr + ":29400",
	}
	j.startAll(j.lab.Hosts...)
	r := j.awaitRound(-1, 4)
	signalTo(j.agentOf(r, 2).cmd.Process.Pid, syscall.SIGUSR1)
	for _, a := range j.agents {
		if code := a.code(); code != preempted {
			t.Errorf("%s ended with %d", a.name, code)
		}
	}
	last := map[int]int{} // step by rank
	for _, l := range j.record() {
		if l.Event == "end" {
			last[l.Rank] = l.Step
		}
	}
	saved := last[0]
	if len(last) != 4 || last[1] != saved || last[2] != saved || last[3] != saved {
		t.Errorf("the last steps by rank are %v", last)
	}
	j.agents = nil
	j.startAll(j.lab.Hosts...)
	await(t, "the next run", func() bool { return lastStep(j.record()) > saved+2 })
	j.finish()
	for _, a := range j.agents {
		if code := a.code(); code != 0 {
			t.Errorf("%s of the next run ended with %d", a.name, code)
		}
	}
	for _, l := range j.record() {
		if l.Event == "resumed" && l.Step != 0 && l.Step != saved || l.Restart > 0 {
			t.Errorf("%+v, want it to go on from step %d", l, saved)
		}
	}
}

// TestPreemptionAnytime signals one of three nodes at a random time: while they start, between rounds, and during a
// restart. Every worker that lives and handles the signal gets it, and all nodes end with the same code.
func TestPreemptionAnytime(t *testing.T) {
	t.Parallel()
	seed := anySeed(t)
	t.Logf("ELASTICRUN_SEED=%d repeats the times and nodes", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range testenv.Repeat(t, 4, 50) {
		preemptAnytime(t, time.Duration(rng.Int64N(int64(5*time.Second))), rng.IntN(3))
	}
}

func preemptAnytime(t *testing.T, after time.Duration, node int) {
	t.Helper()
	j := newJob(t, 3)
	j.worker = []string{workerScript(t, "preempted.py"), j.dir}
	j.flags = []string{
		"--nnodes=2:3", "--nproc-per-node=2", "--rdzv-id=job", "--preempt-signals=USR1", "--max-restarts=100", "--min-uptime=0",
		"--event-log=" + j.dir + "/${hostname}.events", "--rdzv-conf=last_call_timeout=8",
		"--rdzv-endpoint=" + j.lab.Hosts[0].Addr + ":29400",
	}
	j.startAll(j.lab.Hosts...)
	<-time.After(after)
	target := j.agents[node]
	testenv.Await(t, "the launcher to handle signals", bound, func() bool {
		log, _ := os.ReadFile(filepath.Join(j.dir, target.host.Name+".events"))
		return len(log) > 0
	})
	sent := monotonic()
	signalTo(target.cmd.Process.Pid, syscall.SIGUSR1)
	for _, a := range j.agents {
		if code := a.code(); code != preempted {
			t.Errorf("%s, signaled %v after its start, ended with %d", a.name, after, code)
		}
	}
	workers, err := readPreempted(j.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range workers {
		if bad := w.missed(sent); bad != "" {
			t.Errorf("signal at %.3f, %v after the start: a worker that %s: %v", sent, after, bad, w)
		}
	}
}

// preemptedWorker is what testdata/workers/preempted.py has recorded: the times of its events.
type preemptedWorker map[string]float64

// missed says why a worker should have got the signal; empty if it has, or need not. A worker that was stopped for
// another reason at about the same time, or before it was ready, need not.
func (w preemptedWorker) missed(sent float64) string {
	_, got := w["got"]
	ready, wasReady := w["ready"]
	_, failed := w["fails"]
	term, stopped := w["term"]
	switch {
	case got, failed, !wasReady:
		return ""
	case stopped && term > max(sent, ready)+0.2:
		return "was only stopped"
	case stopped:
		return ""
	}
	return "got nothing at all"
}

func readPreempted(dir string) (workers []preemptedWorker, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "worker.*"))
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		w := preemptedWorker{}
		for in := bufio.NewScanner(f); in.Scan(); {
			var at float64
			var event string
			if _, err := fmt.Sscan(in.Text(), &at, &event); err == nil {
				w[event] = at
			}
		}
		_ = f.Close()
		workers = append(workers, w)
	}
	return slices.Clip(workers), err
}
