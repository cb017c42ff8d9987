package scenario

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// memberPorts are the ports of workers' stores. All but the first one are for agents that keep the job's store.
const memberPorts = "29500-29510"

// fewVoters begins a line of the agent that alone keeps the job's store.
const fewVoters = "only this node keeps the job's store"

// TestNodesCannotBeReached blocks the ports where all but the first node offer to keep the job's store. The job runs
// with one voter, whose agent says once what it cannot reach and what to do. So does elasticrun status. When the ports
// are open, three voters keep the store.
func TestNodesCannotBeReached(t *testing.T) {
	t.Parallel()
	j := newTogether(t, "4")
	j.flags = append(j.flags, "--worker-store-port="+memberPorts)
	for _, h := range j.nodes() {
		h.Block(29501, 29510)
	}
	j.startAll(j.nodes()...)
	j.awaitRound(-1, 4)
	founder := j.agents[0]
	founder.await(fewVoters)
	const problem = "it cannot reach the nodes that offer to keep it too, at 10.75.0."
	for _, want := range []string{
		problem, "10.75.0.2:29510", "10.75.0.3:29510", "10.75.0.4:29510", "nothing answers there", "open ports " + memberPorts,
	} {
		if !strings.Contains(founder.text(), want) {
			t.Errorf("%s does not say %q", founder.name, want)
		}
	}
	const advice = "nodes that come later find the job only at 10.75.0.1:29400; a second and a third node"
	for i, a := range j.agents {
		if says := strings.Contains(a.text(), advice); says != (i == 0) {
			t.Errorf("%s says what further endpoints add: %v", a.name, says)
		}
	}
	for _, a := range j.agents[1:] {
		if strings.Contains(a.text(), fewVoters) {
			t.Errorf("%s, which does not keep the store, warns too", a.name)
		}
	}
	await(t, "elasticrun status to say why one node keeps the store", func() bool {
		return strings.Contains(j.status(), "store: kept by 10.75.0.1:29400 alone, whose loss would end the job: "+problem)
	})
	for _, h := range j.nodes() {
		h.Unblock()
	}
	founder.await(survivesLoss)
	j.finish()
	j.end(0, nil, expected{worlds: []int{4}})
	if got := strings.Count(founder.text(), fewVoters); got != 1 {
		t.Errorf("%s warns %d times", founder.name, got)
	}
}

// between cuts the path between two nodes, while both reach all others. heal ends that.
func between(a, b *hosts.Host) (heal func()) {
	a.DropTo(b)
	b.DropTo(a)
	return func() {
		a.Reach(b)
		b.Reach(a)
	}
}

// TestTwoNodesApart begins a job in which two nodes do not reach each other. A third node keeps the store in place of
// one of them, so the job goes on when the first node is lost. One of the two is then left out: it does not reach the
// agent that leads, or it is quarantined because it does not reach the other one's workers.
func TestTwoNodesApart(t *testing.T) {
	t.Parallel()
	j := newTogether(t, "2:4")
	j.use(plain) // gloo needs workers that all reach each other
	between(j.nodes()[1], j.nodes()[2])
	j.start(j.nodes()[0]).await("hosting the rendezvous")
	j.startAll(j.nodes()[1:]...)
	first := j.awaitRound(-1, 4)
	founder := j.agents[0]
	founder.await(survivesLoss)
	founder.host.PowerOff()
	next := j.awaitRound(first.number, 2)
	j.finish()
	codes := map[*program]int{founder: 128 + int(syscall.SIGKILL)}
	for _, a := range j.agents[1:] {
		if slices.ContainsFunc(next.lines, func(l line) bool { return l.Host == a.host.Name }) {
			continue
		}
		if codes[a] = a.code(); codes[a] != 0 && codes[a] != exitRendezvous || a == j.agents[3] {
			t.Errorf("%s is left out, and ended with %d", a.name, codes[a])
		}
	}
	j.end(0, codes, expected{worlds: []int{4, 2}})
}

// TestThreeNodesApart begins a job of three nodes of which two do not reach each other. The agent that leads says so
// once, and so does elasticrun status. When they reach each other, any one node may be lost.
func TestThreeNodesApart(t *testing.T) {
	t.Parallel()
	j := newTogether(t, "3")
	j.use(plain) // gloo needs workers that all reach each other
	heal := between(j.nodes()[1], j.nodes()[2])
	j.start(j.nodes()[0]).await("hosting the rendezvous")
	j.startAll(j.nodes()[1:3]...)
	j.awaitRound(-1, 3)
	founder := j.agents[0]
	const line = "the loss of this node may end the job"
	founder.await(line)
	for _, want := range []string{"do not reach each other (nothing answers there)", "open the ports between the nodes"} {
		if !strings.Contains(founder.text(), want) {
			t.Errorf("%s does not say %q", founder.name, want)
		}
	}
	await(t, "elasticrun status to say who does not reach whom", func() bool {
		text := j.status()
		return strings.Contains(text, "the loss of 10.75.0.1:29400 may end the job: 10.75.0.") &&
			strings.Contains(text, "do not reach each other (nothing answers there)")
	})
	for _, a := range j.agents {
		if strings.Contains(a.text(), survivesLoss) {
			t.Errorf("%s promises that any one node may be lost", a.name)
		}
	}
	heal()
	founder.await(survivesLoss)
	j.finish()
	j.end(0, nil, expected{worlds: []int{3}})
	if got := strings.Count(founder.text(), line); got != 1 {
		t.Errorf("%s warns %d times", founder.name, got)
	}
}

// status returns what elasticrun status says on the first node of the job at the endpoint of useAgent.
func (j *job) status() string {
	j.t.Helper()
	args := []string{"status", "--rdzv-endpoint=10.75.0.1:29400"}
	for _, flag := range j.flags {
		if strings.HasPrefix(flag, "--rdzv-id=") {
			args = append(args, flag)
		}
	}
	p := run(j.t, j.lab.Hosts[0], "elasticrun status", j.lab.Hosts[0].Command(j.t.Context(), testenv.Binary(j.t), args...))
	p.code()
	return p.text()
}

// TestFewNodesKeepTheStore runs a job of two nodes that may grow: the first one's agent says, once, what it survives.
func TestFewNodesKeepTheStore(t *testing.T) {
	t.Parallel()
	j := newTogether(t, "2:5")
	// The machines of the other endpoints never come.
	j.lab.AddNames("10.75.0.91 absent0", "10.75.0.92 absent1", "10.75.0.93 absent2")
	j.flags = append(j.flags, "--rdzv-endpoint=node0,node1,absent0,absent1,absent2", lastCall(time.Second))
	j.startAll(j.lab.Hosts[:2]...)
	j.awaitRound(-1, 2)
	j.agents[0].await(fewVoters + ", and its loss would end the job: any one node")
	j.finish()
	j.end(0, nil, expected{worlds: []int{2}})
	if strings.Contains(j.agents[0].text(), "find the job only at") {
		t.Error("a job with several endpoints is told to have more")
	}
	if text := j.agents[1].text(); strings.Contains(text, fewVoters) {
		t.Errorf("%s, which does not keep the store, says so too", j.agents[1].name)
	}
}
