package scenario

import (
	"syscall"
	"testing"
)

// TestStoreHostReplaced kills the agent that hosts the store and starts it again at once. The new store does not know
// the other node, whose workers ignore SIGTERM and live until their agent gives up the old store. No world may begin
// beside them.
func TestStoreHostReplaced(t *testing.T) {
	t.Parallel()
	j := newWitnessJob(t, 2)
	host, other := j.lab.Hosts[0], j.lab.Hosts[1]
	j.flags = []string{
		"--nnodes=1:2", "--rdzv-id=job", "--max-restarts=5", longKeepAliveConf, "--restart-grace=20", "--shutdown-timeout=1",
	}
	j.useAgent(nil)
	first := j.start(host, []string{"--ignore-term"})
	j.start(other, []string{"--ignore-term"})
	before := j.awaitWorld(world{}, host, other)
	if err := syscall.Kill(first.agentPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	first.code()
	j.start(host, []string{"--ignore-term"})
	j.awaitWorld(before)
	j.safe()
	j.stopAll()
}

// TestStoreHostReplacedWhileNodeIsCutOff replaces the store's agent, and replaces the agent of a node that is cut off
// from the store by another agent on the same machine. The two old and the two new workers must never be alive at
// once.
func TestStoreHostReplacedWhileNodeIsCutOff(t *testing.T) {
	t.Parallel()
	j := newWitnessJob(t, 3)
	host, cut, spare := j.lab.Hosts[0], j.lab.Hosts[1], j.lab.Hosts[2]
	j.flags = []string{
		"--nnodes=2", "--rdzv-id=job", "--max-restarts=5", longKeepAliveConf, "--restart-grace=20", "--shutdown-timeout=1",
	}
	j.useAgent(nil)
	first := j.start(host, nil)
	j.start(cut, []string{"--ignore-term"})
	before := j.awaitWorld(world{}, host, cut)
	cut.Cut()
	if err := syscall.Kill(first.agentPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	first.code()
	j.start(host, nil)
	j.start(spare, nil)
	j.awaitWorld(before)
	j.safe()
	j.stopAll()
}
