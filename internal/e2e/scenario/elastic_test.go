package scenario

import (
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// backend sets the host of the job's rendezvous, by the agents' flags.
type backend struct {
	name string
	use  func(j *job, on *hosts.Host)
}

// apart are the backends whose store is in no agent, so any agent may die.
var apart = []backend{{"c10d", (*job).useStore}, {"etcd", (*job).useEtcd}}

// joinTimeout is the time for which an agent of these jobs tries to reach a silent store.
const joinTimeout = 10 * time.Second

// newElastic makes a job of 2 to 4 nodes with one worker each, on node0 to node3. node4 is free.
func newElastic(t testing.TB, maxRestarts int) *job {
	t.Helper()
	j := newJob(t, 5)
	j.flags = []string{
		"--nnodes=2:4", "--rdzv-id=job", fmt.Sprintf("--max-restarts=%d", maxRestarts),
		// A round of four nodes needs no last call, which is only for nodes that a busy machine starts late.
		lastCall(8 * time.Second),
	}
	return j
}

// lastCall sets how long a round waits for more nodes, beside the options of all these jobs.
func lastCall(wait time.Duration) string {
	return fmt.Sprintf("--rdzv-conf=last_call_timeout=%d,join_timeout=%d,%s", wait/time.Second, joinTimeout/time.Second,
		keepAliveConf)
}

// nodes returns the hosts of the agents.
func (j *job) nodes() []*hosts.Host { return j.lab.Hosts[:4] }

// useAgent makes the agent on node0 host the store.
func (j *job) useAgent(*hosts.Host) {
	j.flags = append(j.flags, "--rdzv-backend=c10d", "--rdzv-endpoint="+j.lab.Hosts[0].Addr+":29400")
}

// useStore starts elasticrun store on a host, possibly again.
func (j *job) useStore(on *hosts.Host) {
	j.t.Helper()
	const port = ":29400"
	j.flags = append(j.flags, "--rdzv-backend=c10d", "--rdzv-endpoint="+on.Addr+port)
	j.startStore(on, "--listen="+on.Addr+port)
}

// startStore returns when the store listens.
func (j *job) startStore(on *hosts.Host, flags ...string) *program {
	j.t.Helper()
	args := append([]string{"store"}, flags...)
	p := run(j.t, on, on.Name+" store", on.Command(j.t.Context(), testenv.Binary(j.t), args...))
	j.others = append(j.others, p)
	p.await("listening on")
	return p
}

// useEtcd starts Debian's etcd server on a host.
func (j *job) useEtcd(on *hosts.Host) {
	j.t.Helper()
	j.flags = append(j.flags, "--rdzv-backend=etcd", "--rdzv-endpoint="+on.Addr+":2379")
	args := etcdCommand(j.t, on, j.t.TempDir())
	p := run(j.t, on, on.Name+" etcd", on.Command(j.t.Context(), args[0], args[1:]...))
	j.others = append(j.others, p)
	p.await("ready to serve client requests")
}

// etcdCommand returns the command of Debian's etcd server on a host, with its data in a folder.
func etcdCommand(t testing.TB, on *hosts.Host, dir string) []string {
	t.Helper()
	etcd, err := exec.LookPath("etcd")
	if err != nil {
		testenv.Missing(t, "needs etcd: %v (apt-get install etcd-server)", err)
	}
	url := "http://" + on.Addr + ":2379"
	return []string{
		etcd, "--data-dir", dir, "--listen-client-urls", url, "--advertise-client-urls", url,
		"--listen-peer-urls", "http://127.0.0.1:2380",
	}
}

// departure is a way for a node to leave.
type departure struct {
	name string
	// leave makes the agent's node leave, and returns the exit code that the agent must end with.
	leave func(j *job, a *program) int
}

var departures = []departure{
	{"SIGKILL of the agent", func(j *job, a *program) int {
		if err := syscall.Kill(a.agentPID(), syscall.SIGKILL); err != nil {
			j.t.Fatal(err)
		}
		return 128 + int(syscall.SIGKILL)
	}},
	{"SIGTERM", func(j *job, a *program) int {
		if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			j.t.Fatal(err)
		}
		return 128 + int(syscall.SIGTERM)
	}},
	{"power loss", func(_ *job, a *program) int {
		a.host.PowerOff()
		return 128 + int(syscall.SIGKILL)
	}},
	{"partition", func(j *job, a *program) int {
		j.lab.Partition(a.host)
		return exitRendezvous
	}},
}

// exitRendezvous is the exit code of an agent that has lost the other agents.
const exitRendezvous = 75

// victims are the nodes whose departures differ, by their rank.
var victims = []struct {
	name string
	rank int
}{
	{"node rank 0", 0},
	{"the last node", -1},
}

// TestNodeGoes removes one of four nodes. The job continues with three from the checkpoint, and charges no restart,
// though its budget has none. make test runs each departure once, with all pairs of backend and victim. make soak has
// real torch in these cases at least.
func TestNodeGoes(t *testing.T) {
	t.Parallel()
	for d, departure := range departures {
		for b, backend := range apart {
			for v, victim := range victims {
				quick := b == d%2 && v == d/2%2
				if !testenv.Whole(t) && !quick {
					continue
				}
				for i := range testenv.Repeat(t, 1, 10) {
					t.Run(fmt.Sprintf("%s, %s, %s, %d", backend.name, departure.name, victim.name, i), func(t *testing.T) {
						t.Parallel()
						j := newElastic(t, 0)
						if quick && i == 0 {
							j.useTorchInSoak()
						}
						backend.use(j, j.lab.Hosts[4])
						j.startAll(j.nodes()...)
						first := j.awaitRound(-1, 4)
						gone := j.agentOf(first, victim.rank)
						code := departure.leave(j, gone)
						j.awaitRound(first.number, 3)
						j.finish()
						j.end(0, map[*program]int{gone: code}, expected{worlds: []int{4, 3}})
					})
				}
			}
		}
	}
}

// TestNodesCome lets two more nodes join a job of two, which continues with all four after one change. make test runs
// it on etcd only, because TestSplit covers the other backend.
func TestNodesCome(t *testing.T) {
	t.Parallel()
	for b, backend := range apart {
		if !testenv.Whole(t) && b != 1 {
			continue
		}
		for i := range testenv.Repeat(t, 1, 20) {
			t.Run(fmt.Sprintf("%s, %d", backend.name, i), func(t *testing.T) {
				t.Parallel()
				j := newElastic(t, 0)
				// Two nodes begin soon. The others may start one after the other on a busy machine.
				j.flags = append(j.flags, lastCall(time.Second)+",join_settle=60")
				if b == 1 && i == 0 {
					j.useTorchInSoak()
				}
				backend.use(j, j.lab.Hosts[4])
				j.startAll(j.nodes()[:2]...)
				first := j.awaitRound(-1, 2)
				j.startAll(j.nodes()[2:]...)
				j.awaitRound(first.number, 4)
				j.finish()
				j.end(0, nil, expected{worlds: []int{2, 4}})
			})
		}
	}
}

// TestSplit splits four nodes two and two. Both sides could form a job of two; only the store's side may.
func TestSplit(t *testing.T) {
	t.Parallel()
	for i := range testenv.Repeat(t, 1, 20) {
		backend := apart[i%2]
		t.Run(fmt.Sprintf("%s, %d", backend.name, i), func(t *testing.T) {
			t.Parallel()
			j := newElastic(t, 0)
			if i == 0 {
				j.useTorchInSoak()
			}
			backend.use(j, j.lab.Hosts[4])
			j.startAll(j.nodes()...)
			first := j.awaitRound(-1, 4)
			gone := []*program{j.agentOf(first, 0), j.agentOf(first, -1)}
			j.lab.Partition(gone[0].host, gone[1].host)
			j.awaitRound(first.number, 2)
			j.finish()
			j.end(0, map[*program]int{gone[0]: exitRendezvous, gone[1]: exitRendezvous}, expected{worlds: []int{4, 2}})
		})
	}
}

// TestNodeReturns kills a node and starts an agent on it after the job has noticed. Another node hosts the store.
func TestNodeReturns(t *testing.T) {
	t.Parallel()
	testenv.InSoak(t)
	j := newElastic(t, 0)
	j.useAgent(nil)
	j.startAll(j.nodes()...)
	first := j.awaitRound(-1, 4)
	gone := j.agents[1]
	gone.host.PowerOff()
	second := j.awaitRound(first.number, 3)
	gone.host.Heal()
	j.start(gone.host)
	j.awaitRound(second.number, 4)
	j.finish()
	j.end(0, map[*program]int{gone: 128 + int(syscall.SIGKILL)}, expected{worlds: []int{4, 3, 4}})
}

// TestUnequalNodes has nodes of one, two, one and two workers, and loses a node of two.
func TestUnequalNodes(t *testing.T) {
	t.Parallel()
	testenv.InSoak(t)
	j := newElastic(t, 0)
	j.useStore(j.lab.Hosts[4])
	for i, h := range j.nodes() {
		j.start(h, fmt.Sprintf("--nproc-per-node=%d", 1+i%2))
	}
	first := j.awaitRound(-1, 6)
	i := slices.IndexFunc(j.agents, func(a *program) bool { return a.host.Name == "node1" })
	gone := j.agents[i]
	gone.host.PowerOff()
	j.awaitRound(first.number, 4)
	j.finish()
	j.end(0, map[*program]int{gone: 128 + int(syscall.SIGKILL)}, expected{worlds: []int{6, 4}})
}

// TestOneMachine has four agents on one host, without a flag that says so, and loses one.
func TestOneMachine(t *testing.T) {
	t.Parallel()
	testenv.InSoak(t)
	j := newElastic(t, 0)
	j.useTorchInSoak()
	host := j.lab.Hosts[0]
	j.flags = append(j.flags, "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:29400")
	j.start(host)
	// The first agent hosts the store.
	if err := host.Command(t.Context(), "timeout", "20", "bash", "-c", "until (>/dev/tcp/localhost/29400); do sleep 0.02; done").Run(); err != nil {
		t.Fatalf("the first agent does not listen: %v", err)
	}
	j.startAll(host, host, host)
	first := j.awaitRound(-1, 4)
	code := departures[0].leave(j, j.agents[3])
	j.awaitRound(first.number, 3)
	j.finish()
	j.end(0, map[*program]int{j.agents[3]: code}, expected{worlds: []int{4, 3}})
}
