package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// keepsAlive has the short keep-alive time, and a grace to go with it.
var keepsAlive = []string{
	"--rdzv-conf=last_call_timeout=2," + keepAliveConf, "--restart-grace=1", "--shutdown-timeout=1",
}

// failOn has the worker of that rank end with an error. Its node must be another one than that whose agent is to be
// stuck.
func (j *witnessJob) failOn(rank int) {
	j.t.Helper()
	if err := os.WriteFile(filepath.Join(j.dir, fmt.Sprintf("fail.%d", rank)), nil, 0o600); err != nil {
		j.t.Fatal(err)
	}
}

// stuckEvents is the event log of the agent that is to be stuck.
func (j *witnessJob) stuckEvents() string { return filepath.Join(j.dir, "events.jsonl") }

// startStuck starts a job of two nodes, of which node1 has its log folder on a disk of its own. The disk then hangs
// while a round ends, so that the agent cannot start the next round's workers. It returns the world before.
func startStuck(t *testing.T, j *witnessJob, disk *testenv.Disk) world {
	t.Helper()
	j.flags = append([]string{"--nnodes=1:3", "--rdzv-id=job", "--max-restarts=5"}, keepsAlive...)
	j.useStore(j.lab.Hosts[3])
	j.start(j.lab.Hosts[0], nil)
	logs := filepath.Join(disk.Path, "logs")
	j.start(j.lab.Hosts[1], nil, "--log-dir="+logs, "--redirects=3", "--event-log="+j.stuckEvents())
	before := j.awaitWorld(world{}, j.lab.Hosts[:2]...)
	disk.Freeze()
	for _, l := range j.workers(j.lab.Hosts[0]) {
		j.failOn(l.Rank)
	}
	return before
}

// An agent whose log folder hangs starts no workers. Those of the other node must not wait for them for ever: the job
// goes on without that node, within a time that follows from the keep-alive time and the grace.
func TestJobGoesOnWithoutStuckAgent(t *testing.T) {
	t.Parallel()
	j := newWitnessJob(t, 4)
	disk := testenv.NewDisk(t, 16)
	before := startStuck(t, j, disk)
	j.awaitWorld(before, j.lab.Hosts[0])
	j.safe()
	disk.Thaw()
	j.stopAll()
}

// An agent whose log folder hangs is left behind by a round that a newcomer begins. When the folder no longer hangs the
// agent must not start workers of the round before.
func TestStuckAgentStartsNoOldRound(t *testing.T) {
	t.Parallel()
	j := newWitnessJob(t, 4)
	disk := testenv.NewDisk(t, 16)
	before := startStuck(t, j, disk)
	await(t, "the stuck agent's round, or the one without it", func() bool {
		for _, l := range j.workers(j.lab.Hosts[0]) {
			if l.world() != before {
				before = l.world()
				return true
			}
		}
		return false
	})
	j.start(j.lab.Hosts[2], nil)
	j.awaitWorld(before, j.lab.Hosts[0], j.lab.Hosts[2])
	disk.Thaw()
	await(t, "the agent that was stuck to be in a world again, or to end", func() bool {
		for _, on := range settled(j.obs.alive()) {
			if on[j.lab.Hosts[1].Name] {
				return true
			}
		}
		return slices.Contains(j.ended(), j.agents[1])
	})
	j.safe()
	// Such a worker may be gone before it is seen. Its agent has put it on record.
	events, err := os.ReadFile(j.stuckEvents())
	if err != nil {
		t.Fatal(err)
	}
	for event := range strings.Lines(string(events)) {
		round := fmt.Sprintf(`"round":%d,`, before.round)
		if strings.Contains(event, `"event":"worker_started"`) && strings.Contains(event, round) {
			t.Errorf("the agent that was stuck has started a worker of a round that was over: %s", event)
		}
	}
	j.stopAll()
}
