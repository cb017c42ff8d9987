package scenario

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"
)

// TestAgentReplacedWhileGuardIsStopped stops the guard and kills its agent. A grandchild in a session of its own
// survives, and only the guard can find it. A new agent on that node must not begin a round before the guard has
// continued and killed the grandchild.
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
	j.watchFor(longKeepAlive / 3) // before the old agent's session expires
	// The kernel continued the guard when the agent died, so the guard may have ended already.
	if err := syscall.Kill(old.cmd.Process.Pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
	j.awaitWorld(before, other, node)
	j.safe()
	if code := old.code(); code != 128+int(syscall.SIGKILL) {
		t.Errorf("the guard ended with %d", code)
	}
	j.stopAll()
}

// TestKilledAgentIsNotWaitedFor checks that the others do not wait until the session of a killed agent expires: its
// guard notifies the store when the last process has ended, including one in a session of its own.
func TestKilledAgentIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for _, backend := range apart {
		t.Run(backend.name, func(t *testing.T) {
			t.Parallel()
			j := newWitnessJob(t, 3)
			node, other := j.lab.Hosts[1], j.lab.Hosts[0]
			const veryLong = time.Minute // so that a busy machine takes much less
			conf := fmt.Sprintf("--rdzv-conf=last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=%d",
				veryLong/time.Second)
			j.flags = []string{"--nnodes=1:2", "--rdzv-id=job", "--max-restarts=5", conf}
			backend.use(j.job, j.lab.Hosts[2])
			j.start(other, nil)
			killed := j.start(node, []string{"--detached"})
			before := j.awaitWorld(world{}, other, node)
			if err := syscall.Kill(killed.agentPID(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			j.awaitWorld(before, other)
			if took := time.Since(began); took > veryLong/2 {
				t.Errorf("the job went on after %v; the keep-alive time is %v", took, veryLong)
			}
			j.safe()
			j.stopAll()
		})
	}
}
