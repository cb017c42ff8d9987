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

// keepsAlive has the short keep-alive time and a grace that fits it.
var keepsAlive = []string{
	"--rdzv-conf=last_call_timeout=2," + keepAliveConf, "--restart-grace=1", "--shutdown-timeout=1", "--rejoin-timeout=4",
}

// failOn makes the worker of that rank end with an error. It must run on another node than the agent that will hang.
func (j *witnessJob) failOn(rank int) {
	j.t.Helper()
	if err := os.WriteFile(filepath.Join(j.dir, fmt.Sprintf("fail.%d", rank)), nil, 0o600); err != nil {
		j.t.Fatal(err)
	}
}

// stuckEvents is the path of the event log of the agent that will hang.
func (j *witnessJob) stuckEvents() string { return filepath.Join(j.dir, "events.jsonl") }

// startStuck starts a job of two nodes. node1 has its log folder on a disk of its own. The disk hangs while a round
// ends, so that the agent cannot start the next round's workers. startStuck returns the world before.
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

// TestJobGoesOnWithoutStuckAgent checks that the other node does not wait for ever for an agent whose log folder
// hangs: the job continues without it, within a time that follows from the keep-alive time and the grace.
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

// TestStuckAgentStartsNoOldRound lets a newcomer begin a round without an agent whose log folder hangs. When the
// folder works again, the agent must not start the workers of the earlier round.
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
	// Such a worker can end before the observer sees it, but its agent has recorded it.
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
