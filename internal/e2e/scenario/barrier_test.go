package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestExitBarrier has a node that finishes at once and leaves the exit barrier when the barrier's time is over. The
// other node goes on and succeeds too. Rank 0 hosts the workers' store and stays for the keep-alive time.
func TestExitBarrier(t *testing.T) {
	t.Parallel()
	for i, backend := range apart {
		for rank := range 2 {
			if rank == i && !testenv.Whole(t) {
				continue
			}
			t.Run(fmt.Sprintf("%s, rank %d", backend.name, rank), func(t *testing.T) {
				t.Parallel()
				j := newJob(t, 3)
				j.flags = []string{"--nnodes=2", "--rdzv-id=job", "--rdzv-conf=" + keepAliveConf, "--log-level=info"}
				backend.use(j, j.lab.Hosts[2])
				end := filepath.Join(j.dir, "end")
				j.worker = []string{"--no-python", "sh", "-c", "until test -e " + end + "; do sleep 0.05; done"}
				other := j.start(j.lab.Hosts[1], fmt.Sprintf("--node-rank=%d", 1-rank))
				j.worker = []string{"--no-python", "true"}
				first := j.start(j.lab.Hosts[0], fmt.Sprintf("--node-rank=%d", rank), "--exit-barrier-timeout=0.2")
				if code := first.code(); code != 0 ||
					!strings.Contains(first.text(), "leaving the exit barrier: 1 other node") {
					t.Errorf("the node that leaves ended with %d", code)
				}
				if other.ended() {
					t.Error("the other node has ended")
				}
				if err := os.WriteFile(end, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				j.stop(0, nil)
			})
		}
	}
}
