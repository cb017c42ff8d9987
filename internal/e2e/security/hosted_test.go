package security

import (
	"fmt"
	"net"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// job is a job of two nodes, of which the first one's agent hosts the store and waits for the second one.
type job struct {
	addr       string
	secretFile string
	script     string
	agents     []*program
}

// hostedJob starts the first agent and waits until its store listens.
func hostedJob(t testing.TB, secretFile, script string) *job {
	t.Helper()
	j := &job{addr: fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t)), secretFile: secretFile, script: script}
	j.start(t)
	testenv.Await(t, "the agent's store", bound, func() bool {
		nc, err := net.Dial("tcp", j.addr)
		if err != nil {
			return false
		}
		return nc.Close() == nil
	})
	return j
}

func (j *job) start(t testing.TB) {
	t.Helper()
	j.agents = append(j.agents, startAgent(t, fmt.Sprintf("agent %d", len(j.agents)), j.addr, j.secretFile, j.script))
}

// finish starts the second agent, and the job must succeed.
func (j *job) finish(t testing.TB) {
	t.Helper()
	j.start(t)
	for _, a := range j.agents {
		if code := a.code(); code != 0 {
			t.Errorf("%s ended with %d", a.name, code)
		}
	}
}
