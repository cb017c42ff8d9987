package scenario

import (
	"crypto/rand"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// newTogether makes a job of nodes with one worker each, whose agents keep the store together. node0 has the endpoint's
// address, so its agent begins the store.
func newTogether(t testing.TB, nnodes string) *job {
	t.Helper()
	j := newJob(t, 4)
	j.flags = []string{
		"--nnodes=" + nnodes, ownRunID(), "--max-restarts=0", lastCall(8 * time.Second), "--log-level=info",
	}
	j.useAgent(nil)
	return j
}

// ownRunID sets a run id that no other test has. The agent at the endpoint leaves a file about the store on this
// machine, which a later lab could take for its own: the kernel uses the numbers of namespaces again.
func ownRunID() string { return "--rdzv-id=" + rand.Text() }

// survivesLoss is in the output of each agent once three of them keep the store.
const survivesLoss = "any one node may be lost"

// takesOver is in the output of both agents of a job of two nodes once one can take over the store from the other.
const takesOver = "the other node takes over"

// startTogether starts an agent on each host. It returns the first round once any one node may be lost. node0 has rank
// 0 in it.
func (j *job) startTogether() round {
	j.t.Helper()
	founder := j.start(j.nodes()[0])
	founder.await("hosting the rendezvous")
	j.startAll(j.nodes()[1:]...)
	first := j.awaitRound(-1, 4)
	for _, a := range j.agents {
		a.await(survivesLoss)
	}
	if j.agentOf(first, 0) != founder {
		j.t.Fatalf("%s has rank 0, want node0", j.agentOf(first, 0).host.Name)
	}
	return first
}

// losses are the ways to lose a node whose agent cannot announce its end.
var losses = []departure{
	departures[0],
	{"SIGKILL of guard and agent", func(j *job, a *program) int {
		agent := a.agentPID()
		for _, pid := range []int{a.cmd.Process.Pid, agent} {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				j.t.Fatal(err)
			}
		}
		return 128 + int(syscall.SIGKILL)
	}},
	departures[2],
	{"link cut", func(_ *job, a *program) int {
		a.host.Cut()
		return exitRendezvous
	}},
}

// TestAnyNodeIsLost loses one of four nodes: the first one, where the store began, or another one that keeps the store
// too. The others continue after one round that is not charged.
func TestAnyNodeIsLost(t *testing.T) {
	t.Parallel()
	for l, loss := range losses {
		for rank, victim := range []string{"the first node", "the second node"} {
			quick := rank == 0 && l != 1
			if !testenv.Whole(t) && !quick {
				continue
			}
			for i := range testenv.Repeat(t, 1, 5) {
				t.Run(fmt.Sprintf("%s, %s, %d", loss.name, victim, i), func(t *testing.T) {
					t.Parallel()
					j := newTogether(t, "2:4")
					if l == 0 && i == 0 {
						j.useTorchInSoak()
					}
					first := j.startTogether()
					gone := j.agentOf(first, rank)
					code := loss.leave(j, gone)
					j.awaitRound(first.number, 3)
					j.finish()
					j.end(0, map[*program]int{gone: code}, expected{worlds: []int{4, 3}})
				})
			}
		}
	}
}

// TestWatchFollowsTheStore watches a job by elasticrun status, and the node that keeps the store is lost. The status
// continues with the other nodes, and ends with the job.
func TestWatchFollowsTheStore(t *testing.T) {
	t.Parallel()
	j := newTogether(t, "2:4")
	j.flags = append(j.flags, "--rdzv-endpoint=node0:29400,node1:29400,node2:29400")
	first := j.startTogether()
	gone := j.agents[0]
	flags := slices.DeleteFunc(slices.Clone(j.flags), func(flag string) bool { return !strings.HasPrefix(flag, "--rdzv-id=") })
	at := j.nodes()[3]
	args := append([]string{"status", "--watch", "--json", "--rdzv-endpoint=node0:29400,node1:29400,node2:29400"}, flags...)
	watch := run(t, at, "elasticrun status", at.Command(t.Context(), testenv.Binary(t), args...))
	watch.await(`"nodes":4`)
	gone.host.PowerOff()
	second := j.awaitRound(first.number, 3)
	watch.await(fmt.Sprintf(`"round":{"number":%d,"nodes":3`, second.number))
	j.finish()
	j.end(0, map[*program]int{gone: 128 + int(syscall.SIGKILL)}, expected{worlds: []int{4, 3}})
	if got := watch.code(); got != 0 {
		t.Errorf("elasticrun status ended with %d", got)
	}
}

// TestCertificateOfEachNode gives each node a certificate for its own name alone. The job goes on when the first node's
// agent is killed, and takes in the next agent there.
func TestCertificateOfEachNode(t *testing.T) {
	t.Parallel()
	for name, endpoints := range map[string]string{
		"one endpoint": "node0:29400", "three endpoints": "node0:29400,node1:29400,node2:29400",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newTogether(t, "2:4")
			j.flags = append(j.flags, "--rdzv-endpoint="+endpoints)
			authority := testenv.NewAuthority(t, "site")
			ca := filepath.Join(t.TempDir(), "ca.pem")
			testenv.TrustAt(t, ca, authority)
			start := func(h *hosts.Host) *program {
				cert, key := authority.Issue(t, h.Name, h.Name)
				conf := fmt.Sprintf("ca_cert=%s,ssl_cert=%s,ssl_cert_key=%s", ca, cert, key)
				return j.start(h, lastCall(8*time.Second)+","+conf)
			}
			founder := start(j.nodes()[0])
			founder.await("hosting the rendezvous")
			for _, h := range j.nodes()[1:] {
				start(h)
			}
			first := j.awaitRound(-1, 4)
			for _, a := range j.agents {
				a.await(survivesLoss)
			}
			code := losses[0].leave(j, founder)
			second := j.awaitRound(first.number, 3)
			start(founder.host)
			j.awaitRound(second.number, 4)
			j.finish()
			j.end(0, map[*program]int{founder: code}, expected{worlds: []int{4, 3, 4}})
		})
	}
}

// TestRollingReplacement replaces every node of a job, one after the other, the first one included. The job never ends,
// and newcomers find it at whichever endpoint is left.
func TestRollingReplacement(t *testing.T) {
	t.Parallel()
	j := newTogether(t, "2:4")
	j.flags = append(j.flags, "--rdzv-endpoint=node0:29400,node1:29400,node2:29400")
	at := j.startTogether()
	codes := map[*program]int{}
	worlds := []int{4}
	for i, h := range j.nodes() {
		old := j.agents[i]
		codes[old] = departures[1].leave(j, old)
		if got := old.code(); got != codes[old] {
			t.Fatalf("%s ended with %d, want %d", h.Name, got, codes[old])
		}
		at = j.awaitRound(at.number, 3)
		j.start(h)
		at = j.awaitRound(at.number, 4)
		worlds = append(worlds, 3, 4)
	}
	j.finish()
	j.end(0, codes, expected{worlds: worlds})
}

// guardKilled kills the guard of an agent, which then ends the job of its node.
var guardKilled = departure{"SIGKILL of the guard", func(j *job, a *program) int {
	if err := a.cmd.Process.Kill(); err != nil {
		j.t.Fatal(err)
	}
	return 128 + int(syscall.SIGKILL)
}}

// TestTwoNodesInTurn replaces both nodes of a job, the one at the endpoint first, and then that one again. The other
// one goes on alone meanwhile.
func TestTwoNodesInTurn(t *testing.T) {
	t.Parallel()
	for _, departure := range []departure{departures[0], departures[1], guardKilled} {
		t.Run(departure.name, func(t *testing.T) {
			t.Parallel()
			j := newTogether(t, "1:2")
			two := j.nodes()[:2]
			j.start(two[0]).await("hosting the rendezvous")
			j.start(two[1])
			at := j.awaitRound(-1, 2)
			j.agents[1].await(takesOver)
			codes, worlds := map[*program]int{}, []int{2}
			running := slices.Clone(j.agents)
			for _, i := range []int{0, 1, 0} {
				old := running[i]
				codes[old] = departure.leave(j, old)
				if got := old.code(); got != codes[old] {
					t.Fatalf("%s ended with %d, want %d", old.name, got, codes[old])
				}
				at = j.awaitRound(at.number, 1)
				running[i] = j.start(two[i])
				at = j.awaitRound(at.number, 2)
				running[i].await(takesOver)
				worlds = append(worlds, 1, 2)
			}
			j.finish()
			j.end(0, codes, expected{worlds: worlds})
		})
	}
}

// TestStartedAgainAtOnce replaces the agent at the endpoint by one that is started while the former still listens
// there. The new one listens there later, so a node that comes after the other one has left finds the job.
func TestStartedAgainAtOnce(t *testing.T) {
	t.Parallel()
	for _, departure := range []departure{departures[1], guardKilled} {
		t.Run(departure.name, func(t *testing.T) {
			t.Parallel()
			j := newTogether(t, "1:2")
			two := j.nodes()[:2]
			former := j.start(two[0])
			former.await("hosting the rendezvous")
			other := j.start(two[1])
			at := j.awaitRound(-1, 2)
			other.await(takesOver)
			codes := map[*program]int{former: departure.leave(j, former)}
			next := j.start(two[0])
			at = j.awaitRound(at.number, 2)
			worlds := worldsWithSteps(j.record()) // perhaps a round without the node came first
			next.await(takesOver)
			codes[other] = departures[1].leave(j, other)
			other.code()
			at = j.awaitRound(at.number, 1)
			j.start(two[1])
			j.awaitRound(at.number, 2)
			j.finish()
			j.end(0, codes, expected{worlds: append(worlds, 1, 2)})
		})
	}
}

// TestSpareKeepsTheStore loses the store's host of a job of two nodes that has a spare. The store survives, because the
// spare keeps it too.
func TestSpareKeepsTheStore(t *testing.T) {
	t.Parallel()
	j := newTogether(t, "2")
	three := j.nodes()[:3]
	founder := j.start(three[0])
	founder.await("hosting the rendezvous")
	j.startAll(three[1:]...)
	first := j.awaitRound(-1, 2)
	for _, a := range j.agents {
		a.await(survivesLoss)
	}
	if s := j.status(); !strings.Contains(s, ", led by 10.75.0.1:29400: any one node may be lost") {
		t.Errorf("elasticrun status says:\n%s", s)
	}
	code := losses[1].leave(j, founder)
	j.awaitRound(first.number, 2)
	j.finish()
	j.end(0, map[*program]int{founder: code}, expected{worlds: []int{2, 2}})
}

// TestEveryoneLeaves stops all nodes at once. They end without waiting for each other.
func TestEveryoneLeaves(t *testing.T) {
	t.Parallel()
	j := newTogether(t, "2:4")
	j.startTogether()
	began := time.Now()
	for _, a := range j.agents {
		departures[1].leave(j, a)
	}
	for _, a := range j.agents {
		if got := a.code(); got != 128+int(syscall.SIGTERM) {
			t.Errorf("%s ended with %d", a.host.Name, got)
		}
	}
	if took := time.Since(began); took > 10*time.Second { // far above what it takes, below a keep-alive time and a grace
		t.Errorf("the nodes took %s to leave", took)
	}
	j.stop(128+int(syscall.SIGTERM), nil)
}
