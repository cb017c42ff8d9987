package scenario

import (
	"syscall"
	"testing"
)

// The guard is stopped and its agent killed: a grandchild in a session of its own lives on, which nobody but the guard
// can find. A new agent on that node must not begin a round before the guard has gone on and has killed it.
func TestAgentReplacedWhileGuardIsStopped(t *testing.T) {
	t.Parallel()
	j := newWitnessJob(t, 3)
	node, other := j.lab.Hosts[1], j.lab.Hosts[0]
	j.flags = []string{"--nnodes=1:2", "--rdzv-id=job", "--max-restarts=5", longKeepAliveConf}
	j.useStore(j.lab.Hosts[2])
	j.start(other, nil)
	old := j.start(node, []string{"--detached"})
	before := j.awaitWorld(world{}, other, node)
	agent := old.agentPID()
	if err := syscall.Kill(old.cmd.Process.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(agent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	j.start(node, nil)
	j.watchFor(longKeepAlive / 3) // within the lease of the old agent
	if err := syscall.Kill(old.cmd.Process.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	j.awaitWorld(before, other, node)
	j.safe()
	if code := old.code(); code != 128+int(syscall.SIGKILL) {
		t.Errorf("the guard ended with %d", code)
	}
	j.stopAll()
}
