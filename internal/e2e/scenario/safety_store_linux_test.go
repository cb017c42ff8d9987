package scenario

import (
	"syscall"
	"testing"
)

// The agent that has the store is killed, and started again at once. The new store knows nothing of the other node,
// whose workers ignore SIGTERM and may live until that agent gives up its old store. No world may begin beside them.
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

// The node that is cut off from the store is replaced by another agent of the same machine while the store's agent is
// replaced, too. The two old and the two new workers of one rank must not meet.
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
