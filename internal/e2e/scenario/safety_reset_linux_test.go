package scenario

import (
	"os"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
)

// longKeepAlive is long enough to distinguish a lost connection from a lost agent.
const longKeepAlive = 8 * time.Second

const longKeepAliveConf = "--rdzv-conf=last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=8"

// TestStoreSeesResetOfLivingAgent checks that a reset seen only by the store does not prove that an agent is gone: the
// agent's workers are alive, and no other round may begin beside them.
func TestStoreSeesResetOfLivingAgent(t *testing.T) {
	t.Parallel()
	j := newWitnessJob(t, 4)
	store := j.lab.Hosts[3]
	j.flags = []string{"--nnodes=2:3", "--rdzv-id=job", "--max-restarts=5", longKeepAliveConf}
	j.useStore(store)
	for _, h := range j.lab.Hosts[:3] {
		j.start(h, nil)
	}
	first := j.awaitWorld(world{}, j.lab.Hosts[:3]...)
	j.lab.Hosts[2].ResetAt(store)
	j.awaitWorld(first)
	store.Reach(j.lab.Hosts[2])
	j.safe()
	j.stopAll()
}

// TestProxyToStoreDies kills a proxy between an agent and the store, which closes both connections. The store sees
// the agent's connection end, the agent sees refused connections, and the workers are alive. No other round may begin
// beside them.
func TestProxyToStoreDies(t *testing.T) {
	t.Parallel()
	j := newWitnessJob(t, 4)
	store := j.lab.Hosts[3]
	j.flags = []string{"--nnodes=2:3", "--rdzv-id=job", "--max-restarts=5", longKeepAliveConf}
	j.useStore(store)
	proxy := j.startProxy(store, store.Addr+":29401", store.Addr+":29400")
	for _, h := range j.lab.Hosts[:2] {
		j.start(h, nil)
	}
	j.start(j.lab.Hosts[2], nil, "--rdzv-endpoint="+store.Addr+":29401")
	first := j.awaitWorld(world{}, j.lab.Hosts[:3]...)
	_ = proxy.cmd.Process.Kill()
	j.awaitWorld(first)
	j.safe()
	j.stopAll()
}

// startProxy starts a TCP proxy on a host and returns when it listens.
func (j *witnessJob) startProxy(on *hosts.Host, listen, target string) *program {
	j.t.Helper()
	cmd := on.Command(j.t.Context(), j.python, workerScript(j.t, "proxy.py"), listen, target)
	cmd.Env = append(os.Environ(), j.mark)
	p := run(j.t, on, on.Name+" proxy", cmd)
	j.others = append(j.others, p)
	p.await("listening")
	return p
}
