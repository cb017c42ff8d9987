package scenario

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

const (
	threePods = "train-0=0 train-1=1 train-2=2"
	// someLookups takes an agent about 3 s.
	someLookups = 7
)

// TestIndexedJob runs the example's command in its pods, whose names resolve only later. gloo of real torch resolves
// names too.
func TestIndexedJob(t *testing.T) {
	t.Parallel()
	p := newPods(t)
	p.useTorchInSoak()
	p.createAll()
	p.each("to look for the endpoint", func(h *hosts.Host) bool {
		return h == p.lab.Hosts[0] ||
			p.names.inVain(h, podEndpoint) >= someLookups // the first pod resolves its own name from /etc/hosts
	})
	if started := p.record(); len(started) > 0 {
		t.Errorf("workers were started before anybody could meet: %v", started)
	}
	p.publish()
	p.awaitRound(-1, podCount)
	p.finish()
	p.end(0, nil, expected{worlds: []int{podCount}})
	p.wantWorlds(threePods)
}

// TestPodReplaced kills a pod, which returns with its index and another address. A job that needs all pods waits and
// gives the pod its old rank. A job that can run with two pods continues, and gives the pod the last rank.
func TestPodReplaced(t *testing.T) {
	t.Parallel()
	testenv.InSoak(t)
	tests := []struct {
		nodes  string
		worlds []string
	}{
		{"3", []string{threePods, threePods}},
		{"2:3", []string{threePods, "train-0=0 train-2=1", "train-0=0 train-2=1 train-1=2"}},
	}
	for _, tt := range tests {
		t.Run(tt.nodes, func(t *testing.T) {
			t.Parallel()
			p := newPods(t)
			if tt.nodes == "3" {
				p.useTorchInSoak()
			}
			p.env["PET_NNODES"] = tt.nodes
			p.env["PET_RDZV_CONF"] += "," + keepAliveConf
			p.createAll()
			p.publish()
			last := p.awaitRound(-1, podCount)
			gone := p.agents[1]
			p.lose(gone)
			sizes := []int{podCount}
			if len(tt.worlds) > 2 {
				last = p.awaitRound(last.number, podCount-1)
				sizes = append(sizes, podCount-1)
			}
			p.create(1)
			p.publish()
			p.awaitRound(last.number, podCount)
			p.finish()
			p.end(0, map[*program]int{gone: 128 + int(syscall.SIGKILL)}, expected{worlds: append(sizes, podCount)})
			p.wantWorlds(tt.worlds...)
		})
	}
}

// TestPodEvicted evicts a pod, as a drain of its node does: the pod gets SIGTERM. All pods save the same step and end
// with the code that podFailurePolicy ignores. The pods that replace them continue from that step.
func TestPodEvicted(t *testing.T) {
	t.Parallel()
	p := newPods(t)
	p.useTorchInSoak()
	p.worker = append(p.worker, "--stop-on-preemption")
	p.createAll()
	p.publish()
	p.awaitRound(-1, podCount)
	signalTo(p.agents[1].cmd.Process.Pid, syscall.SIGTERM)
	p.stop(preempted, nil)
	saved := lastStep(p.record())
	p.agents = nil
	p.createAll()
	p.publish()
	await(t, "steps of the new pods", func() bool { return lastStep(p.record()) > saved+2 })
	p.finish()
	p.stop(0, nil)
	p.wantWorlds(threePods, threePods)
	if worlds := worldsOf(t, p.dir); worlds[1] != fmt.Sprintf("%d: %s", saved, threePods) {
		t.Errorf("worlds %q, want the second to go on from step %d", worlds, saved)
	}
}

// TestFirstPodReplaced kills the pod that hosts the rendezvous, which returns at once with another address. The other
// pods end their workers, join the new host, and the job continues from its checkpoint.
func TestFirstPodReplaced(t *testing.T) {
	t.Parallel()
	testenv.InSoak(t)
	for _, inferred := range []bool{false, true} {
		t.Run(fmt.Sprintf("endpoint inferred %v", inferred), func(t *testing.T) {
			t.Parallel()
			p := newPods(t)
			if !inferred {
				p.useTorchInSoak()
			}
			p.env["PET_RDZV_CONF"] += "," + keepAliveConf
			if inferred {
				delete(p.env, "PET_RDZV_ENDPOINT")
				delete(p.env, "PET_RDZV_ID")
			}
			p.createAll()
			p.publish()
			p.awaitRound(-1, podCount)
			gone := p.agents[0]
			p.agents = p.agents[1:]
			p.lose(gone)
			p.create(0)
			p.publish()
			made := lastStep(p.record())
			await(t, "steps of the new pods", func() bool { return lastStep(p.record()) > made+5 })
			p.finish()
			p.stop(0, nil)
			p.wantWorlds(threePods, threePods)
			if worlds := worldsOf(t, p.dir); strings.HasPrefix(worlds[len(worlds)-1], "0: ") {
				t.Error("the job began anew")
			}
		})
	}
}

// TestServiceEndpoint uses the service's name as endpoint, which resolves to every pod. The pod of index 0 hosts the
// rendezvous, because pods know their indexes.
func TestServiceEndpoint(t *testing.T) {
	t.Parallel()
	testenv.InSoak(t)
	p := newPods(t)
	p.env["PET_RDZV_ENDPOINT"], p.env["LOGLEVEL"] = "train", "info"
	delete(p.env, "ELASTICRUN_RDZV_SECRET_FILE")
	p.createAll()
	p.publish()
	p.awaitRound(-1, podCount)
	p.finish()
	p.end(0, nil, expected{worlds: []int{podCount}})
	p.wantWorlds(threePods)
	for i, a := range p.agents {
		if got := strings.Contains(a.text(), "hosting the rendezvous"); got != (i == 0) {
			t.Errorf("%s hosts the rendezvous: %v", a.name, got)
		}
		if got := strings.Count(a.text(), "can read, change and end this job: it has no secret"); got != max(1-i, 0) {
			t.Errorf("%s warned %d times of a job without a secret", a.name, got)
		}
	}
}

// TestStatefulSet gives its pods only --nnodes: index and endpoint follow from host name and subdomain.
func TestStatefulSet(t *testing.T) {
	t.Parallel()
	testenv.InSoak(t)
	p := newPods(t)
	p.indexed, p.env = false, nil
	p.command = []string{"elasticrun", "--nnodes=3", "train.py"}
	p.createAll()
	p.each("to look for the endpoint", func(h *hosts.Host) bool {
		return h == p.lab.Hosts[0] || p.names.inVain(h, podEndpoint) > 0 // the first pod resolves the name from /etc/hosts
	})
	p.publish()
	p.awaitRound(-1, podCount)
	p.finish()
	p.end(0, nil, expected{worlds: []int{podCount}})
	p.wantWorlds(threePods)
}

// TestIndexedJobWithoutNodes checks that pods without the number of nodes are refused: each would run a job of its
// own.
func TestIndexedJobWithoutNodes(t *testing.T) {
	t.Parallel()
	p := newPods(t)
	delete(p.env, "PET_NNODES")
	p.use(plain) // no worker starts
	a := p.create(1)
	p.publish()
	if code := a.code(); code != 2 {
		t.Errorf("it ended with %d, want 2", code)
	}
	want := "elasticrun: JOB_COMPLETION_INDEX=1: this pod belongs to an Indexed Job, and Kubernetes does not say how many pods that has: " +
		"give --nnodes=N, or PET_NNODES in the pod's environment; --nnodes=1 if each pod is a job of its own\n" +
		"elasticrun: exit_code=2 reason=usage\n"
	if diff := cmp.Diff(want, a.text()); diff != "" {
		t.Errorf("it wrote (-want +got):\n%s", diff)
	}
	p.lab.NothingLeft(0)
}
