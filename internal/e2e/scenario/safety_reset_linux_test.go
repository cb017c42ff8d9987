package scenario

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
)

// longKeepAlive is a time in which an agent whose connection is lost need not be lost: a test sees clearly which of the
// two it was.
const longKeepAlive = 8 * time.Second

const longKeepAliveConf = "--rdzv-conf=last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=8"

// A reset that only the store sees proves nothing about the agent: its workers are alive. No other round may begin
// beside them.
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

// A proxy between an agent and the store that dies closes both connections. The store sees an end of the agent, the
// agent sees a refused connection; the agent's workers are alive. No other round may begin beside them.
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

// startProxy starts a TCP proxy on a host, and returns when it listens.
func (j *witnessJob) startProxy(on *hosts.Host, listen, target string) *program {
	j.t.Helper()
	script, err := filepath.Abs("../../../testdata/workers/proxy.py")
	if err != nil {
		j.t.Fatal(err)
	}
	cmd := on.Command(j.t.Context(), j.python, script, listen, target)
	cmd.Env = append(os.Environ(), j.mark)
	p := run(j.t, on, on.Name+" proxy", cmd)
	j.others = append(j.others, p)
	p.await("listening")
	return p
}
