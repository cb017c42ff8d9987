package zoo

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// victim is the kind of process that a kill hits.
type victim string

const (
	aWorker victim = "worker" // listed several times, because worker failures are the most common
	anAgent victim = "agent"
	aGuard  victim = "guard"
	aTree   victim = "tree" // guard, agent, workers and their children
)

// between is the least time between two kills in a job.
const between = time.Second

// TestRandomKills kills random processes of real jobs under load: workers, their children, agents, guards, whole
// nodes. After each kill nothing is left, and every node names a killed worker as the root cause, whatever errors its
// peers print. In make test the peers print none.
func TestRandomKills(t *testing.T) {
	if !testenv.Whole(t) {
		t.Parallel() // the other tests are load enough
	}
	kills := testenv.Repeat(t, 4, 200)
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("ELASTICRUN_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("ELASTICRUN_SEED=%d repeats this choice of victims", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	if testenv.Whole(t) {
		testenv.Torch(t, "2.14") // skips the test without torch
	}
	endpoint := startStore(t)
	if testenv.Long(t) { // in shorter runs other packages' tests are load enough
		burn(t, 2)
	}
	count := tally{}
	// Each kind comes once first, so that a short run has all of them.
	for first := []victim{aWorker, anAgent, aGuard, aTree}; len(first) > 0 || count.kills < kills; {
		r := round{
			number:  count.kills,
			nodes:   1 + random.IntN(2),
			careful: random.IntN(2) == 1,
			child:   random.IntN(3) == 0,
			random:  random,
		}
		r.victim = []victim{aWorker, aWorker, aWorker, anAgent, aGuard, aTree}[random.IntN(6)]
		if len(first) > 0 {
			r.victim, r.nodes, r.child, first = first[0], 2, len(first) == 4, first[1:]
			r.alone = !testenv.Whole(t)
		}
		t.Run(
			fmt.Sprintf("%d %s of %d nodes", r.number, r.victim, r.nodes),
			func(t *testing.T) { r.run(t, endpoint, &count) },
		)
		if t.Failed() {
			return // processes can be left after a failure
		}
	}
	t.Logf(
		"%d kills, %d of them of workers, %d of which were not named as the root cause",
		count.kills,
		count.workers,
		count.missed,
	)
	if count.missed*100 > count.workers {
		t.Errorf("%d of %d killed workers were not named as the root cause", count.missed, count.workers)
	}
}

// tally counts the kills of all jobs.
type tally struct{ kills, workers, missed int }

// round is one job and its kills.
type round struct {
	number  int
	nodes   int
	careful bool // the workers destroy their process group in an orderly way
	alone   bool // the workers do not train: they start at once, and print no errors about their peers
	child   bool // a worker's child is killed first, which must not affect the job
	victim  victim
	random  *rand.Rand
}

func (r round) run(t *testing.T, endpoint string, count *tally) {
	t.Helper()
	var nodes []*node
	version, scriptArgs := "2.14", []string(nil)
	switch {
	case r.alone:
		version, scriptArgs = "", []string{"--alone"}
	case r.careful:
		scriptArgs = []string{"--finally"}
	}
	// The first node has two workers, the second node one.
	for i := range r.nodes {
		args := []string{"--nproc-per-node=" + strconv.Itoa(2-i)}
		if r.nodes > 1 {
			args = append(
				args,
				"--nnodes=2",
				"--rdzv-endpoint="+endpoint,
				fmt.Sprintf("--rdzv-id=kills-%d", r.number),
				"--node-rank="+strconv.Itoa(i),
				"--rdzv-backend=c10d",
			)
		}
		nodes = append(nodes, startNode(t, version, "coupled.py", args, scriptArgs))
	}
	for i, n := range nodes {
		n.await(2 - i)
	}
	hit := nodes[r.random.IntN(len(nodes))]
	w := hit.workers[r.random.IntN(len(hit.workers))]
	if r.child {
		kill(t, w.child)
		count.kills++
		<-time.After(between)
	}
	count.kills++
	switch r.victim {
	case aWorker:
		count.workers++
		kill(t, w.pid)
		if !named(t, nodes, w.rank) {
			count.missed++
		}
		return
	case anAgent:
		kill(t, hit.agentPID())
	case aGuard:
		kill(t, hit.cmd.Process.Pid)
	case aTree:
		kill(t, hit.tree()...)
	}
	if code := hit.end(); code != 128+int(syscall.SIGKILL) {
		t.Errorf("the node that was hit ended with %d\n%s", code, &hit.stderr)
	}
	// The remaining workers wait for another node.
	for _, n := range nodes {
		if n == hit {
			continue
		}
		if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if code := n.end(); code != 128+int(syscall.SIGTERM) {
			t.Errorf("the other node ended with %d\n%s", code, &n.stderr)
		}
	}
}

// kill kills processes that must exist.
func kill(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && len(pids) == 1 {
			t.Fatalf("kill %d: %v", pid, err)
		}
	}
}

// named waits for the end of all nodes and reports whether each names the killed worker.
func named(t *testing.T, nodes []*node, rank int) bool {
	t.Helper()
	all := true
	for i, n := range nodes {
		code := n.end()
		if n.blamed() == rank && code == 128+int(syscall.SIGKILL) {
			continue
		}
		all = false
		t.Logf(
			"MISSED: node %d ended with %d and blames rank %d, rank %d was killed:\n%s",
			i,
			code,
			n.blamed(),
			rank,
			&n.stderr,
		)
	}
	return all
}
