package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// startByHand starts round n with one worker on each of these hosts.
func (j *job) startByHand(n int, on ...*hosts.Host) []*program {
	j.t.Helper()
	var workers []*program
	for rank, h := range on {
		cmd := h.Command(j.t.Context(), j.trainer.python(j.t), j.worker...)
		cmd.Env = append(os.Environ(), workerEnv(n, len(on), rank, on[0].Addr, 29500+n)...)
		workers = append(workers, run(j.t, h, fmt.Sprintf("worker of %s, round %d", h.Name, n), cmd))
	}
	return workers
}

// TestByHand starts workers without elasticrun, to verify the hosts, the workers and the check of their record. A host
// loses power in the first round. In the second round a worker dies and its peers fail. The third round continues from
// there, and the check finds a worker of a fourth round beside it.
func TestByHand(t *testing.T) {
	t.Parallel()
	testenv.InSoak(t)
	j := newJob(t, 4)
	j.use(ddp)
	first := j.startByHand(1, j.lab.Hosts...)
	j.awaitRound(-1, 4)
	j.lab.Hosts[0].PowerOff()
	if code := first[0].code(); code != 128+int(syscall.SIGKILL) {
		t.Errorf("the worker without power ended with %d", code)
	}
	// A host without power reports nothing, so its peers wait until the test stops them.
	for _, p := range first[1:] {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		if code := p.code(); code != 128+int(syscall.SIGTERM) {
			t.Errorf("%s ended with %d", p.name, code)
		}
	}

	second := j.startByHand(2, j.lab.Hosts[1:]...)
	j.awaitRound(1, 3)
	_ = second[1].cmd.Process.Kill()
	for _, p := range second {
		if code := p.code(); code != 1 && p != second[1] {
			t.Errorf("%s ended with %d after the death of its peer, want 1", p.name, code)
		}
	}

	third := j.startByHand(3, j.lab.Hosts[1], j.lab.Hosts[3])
	last := j.awaitRound(2, 2)
	if fourth := j.startByHand(4, j.lab.Hosts[2]); fourth[0].code() != 99 {
		t.Error("a worker of round 4 has not seen those of round 3")
	}
	j.finish()
	for _, p := range third {
		if code := p.code(); code != 0 {
			t.Errorf("%s ended with %d", p.name, code)
		}
	}
	j.lab.NothingLeft(20 * time.Second)

	record := j.record()
	bad := check(record, expected{worlds: []int{4, 3, 2}, losses: j.trainer.undisturbed(t, lastStep(record))})
	if len(bad) != 2 || !strings.Contains(bad[0], "of round 3 alive") ||
		!strings.Contains(bad[1], "before the end of round 3") {
		t.Errorf("check says %q, want the overlap of rounds 3 and 4", bad)
	}
	if last.steps[0].Step < 10 {
		t.Errorf("round 3 began with step %d, want at least 10", last.steps[0].Step)
	}
	if left, _ := filepath.Glob(filepath.Join(j.dir, "checkpoint.pt.*")); len(left) > 1 {
		t.Errorf("unfinished checkpoints: %v", left) // at most one, from the worker that lost power
	}
}
