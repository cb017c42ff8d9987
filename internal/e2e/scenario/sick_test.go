package scenario

import (
	"syscall"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
)

// TestStoreIsAway cuts off the store for longer than a session lives. The job continues when the store is back.
func TestStoreIsAway(t *testing.T) {
	t.Parallel()
	for _, backend := range apart {
		t.Run(backend.name, func(t *testing.T) {
			t.Parallel()
			j := newElastic(t, 0)
			backend.use(j, j.lab.Hosts[4])
			j.startAll(j.nodes()...)
			first := j.awaitRound(-1, 4)
			j.lab.Hosts[4].Cut()
			for _, a := range j.agents {
				a.await("the store has not answered for")
			}
			j.lab.Hosts[4].Heal()
			j.awaitRound(first.number, 4)
			j.finish()
			worlds := worldsWithSteps(j.record()) // the nodes return one by one
			if worlds[0] != 4 || worlds[len(worlds)-1] != 4 {
				t.Errorf("world sizes %v, want 4 at first and in the end", worlds)
			}
			j.end(0, nil, expected{worlds: worlds})
		})
	}
}

// worldsWithSteps returns the world sizes of the rounds that made a step.
func worldsWithSteps(lines []line) (worlds []int) {
	for _, r := range rounds(lines) {
		if len(r.steps) > 0 {
			worlds = append(worlds, r.lines[0].World)
		}
	}
	return worlds
}

// newImpatient makes a job of 2 to most nodes that quickly detects that a node does not reach another.
func newImpatient(t *testing.T, most string) *job {
	t.Helper()
	j := newElastic(t, 0)
	j.flags[0] = "--nnodes=2:" + most
	j.flags = append(j.flags, "--shutdown-timeout=2", "--restart-grace=2", "--rejoin-timeout=5")
	j.useStore(j.lab.Hosts[4])
	return j
}

// lose drops all packets from a host to others, so that it does not answer them either.
func lose(t *testing.T, h *hosts.Host, to ...*hosts.Host) {
	t.Helper()
	for _, other := range to {
		if out, err := h.Command(t.Context(), "ip", "route", "add", "unreachable", other.Addr+"/32").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// TestSpareOutOfReach lets a spare that no other node reaches replace a lost rank 0. The job continues without both.
func TestSpareOutOfReach(t *testing.T) {
	t.Parallel()
	j := newImpatient(t, "3")
	j.useTorchInSoak()
	nodes := j.nodes()
	j.startAll(nodes[:3]...)
	first := j.awaitRound(-1, 3)
	lose(t, nodes[3], nodes[:3]...)
	spare := j.start(nodes[3])
	spare.await("this one is a spare")
	gone := j.agentOf(first, 0)
	gone.host.PowerOff()
	j.awaitRound(first.number, 2)
	for _, a := range j.agents {
		if a != gone {
			a.await("quarantined")
		}
	}
	j.finish()
	j.end(0, map[*program]int{gone: 128 + int(syscall.SIGKILL)}, expected{worlds: []int{3, 2}})
}

// TestNodeDoesNotReachRank0 lets a node that does not reach rank 0 join a running job. The job continues without it.
func TestNodeDoesNotReachRank0(t *testing.T) {
	t.Parallel()
	j := newImpatient(t, "4")
	nodes := j.nodes()
	j.startAll(nodes[:3]...)
	first := j.awaitRound(-1, 3)
	lose(t, nodes[3], j.agentOf(first, 0).host)
	late := j.start(nodes[3])
	late.await("quarantined")
	j.awaitRound(first.number, 3)
	j.finish()
	j.end(0, nil, expected{worlds: []int{3, 3}})
}
