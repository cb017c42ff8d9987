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

// victim is what a kill hits.
type victim string

const (
	aWorker victim = "worker" // weighted: it is the most common
	anAgent victim = "agent"
	aGuard  victim = "guard"
	aTree   victim = "tree" // guard, agent, workers and their children
)

// between is the time from one kill in a job to the next, at least.
const between = time.Second

// Processes of real jobs are killed at random under load: workers, their children, agents, guards, whole nodes. Nothing is left
// after any of them, and a killed worker is named as the root cause on every node, whatever its peers say when they fail.
func TestRandomKills(t *testing.T) {
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
	testenv.Torch(t, "2.14") // or there is nothing to do
	meeting := startMeeting(t)
	burn(t, testenv.Repeat(t, 0, 2)) // beside other tests there is load enough
	count := tally{}
	// One of each comes first, so that a short run has them all.
	for first := []victim{aWorker, anAgent, aGuard, aTree}; len(first) > 0 || count.kills < kills; {
		r := round{number: count.kills, nodes: 1 + random.IntN(2), careful: random.IntN(2) == 1, child: random.IntN(3) == 0, random: random}
		r.victim = []victim{aWorker, aWorker, aWorker, anAgent, aGuard, aTree}[random.IntN(6)]
		if len(first) > 0 {
			r.victim, r.nodes, r.child, first = first[0], 2, len(first) == 4, first[1:]
		}
		t.Run(fmt.Sprintf("%d %s of %d nodes", r.number, r.victim, r.nodes), func(t *testing.T) { r.run(t, meeting, &count) })
		if t.Failed() {
			return // what was started may be left
		}
	}
	t.Logf("%d kills, %d of them of workers, %d of which were not named as the root cause", count.kills, count.workers, count.missed)
	if count.missed*100 > count.workers {
		t.Errorf("%d of %d killed workers were not named as the root cause", count.missed, count.workers)
	}
}

// tally counts what was done to all jobs.
type tally struct{ kills, workers, missed int }

// round is one job and what is done to it.
type round struct {
	number  int
	nodes   int
	careful bool // the workers leave their process group in order
	child   bool // a worker's child is killed first, of which the job takes no notice
	victim  victim
	random  *rand.Rand
}

func (r round) run(t *testing.T, meeting string, count *tally) {
	t.Helper()
	var nodes []*node
	var scriptArgs []string
	if r.careful {
		scriptArgs = []string{"--finally"}
	}
	// The first node has two workers, the second one.
	for i := range r.nodes {
		args := []string{"--nproc-per-node=" + strconv.Itoa(2-i)}
		if r.nodes > 1 {
			args = append(args, "--nnodes=2", "--rdzv-endpoint="+meeting, fmt.Sprintf("--rdzv-id=kills-%d", r.number), "--node-rank="+strconv.Itoa(i), "--rdzv-backend=c10d")
		}
		nodes = append(nodes, startNode(t, args, scriptArgs))
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
	// The others wait for another node.
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

// kill kills processes that are there.
func kill(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && len(pids) == 1 {
			t.Fatalf("kill %d: %v", pid, err)
		}
	}
}

// named waits for the end of all nodes, of whose workers that one was killed, and reports whether each names it.
func named(t *testing.T, nodes []*node, rank int) bool {
	t.Helper()
	all := true
	for i, n := range nodes {
		code := n.end()
		if n.blamed() == rank && code == 128+int(syscall.SIGKILL) {
			continue
		}
		all = false
		t.Logf("MISSED: node %d ended with %d and blames rank %d, rank %d was killed:\n%s", i, code, n.blamed(), rank, &n.stderr)
	}
	return all
}
