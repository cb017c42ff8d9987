package scenario

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// leastInSoak is more steps than most jobs make, so that the many jobs of make soak share one undisturbed run.
const leastInSoak = 2000

// trainer is a program of workers that train and record every step.
type trainer struct {
	script string // in testdata/workers
	python func(testing.TB) string

	// Tests share an undisturbed run, which is made again if one needs more steps.
	mu     sync.Mutex
	losses []float64
	err    error
}

var (
	// ddp trains with real torch, which takes seconds of CPU time to start.
	ddp = &trainer{script: "ddp_train.py", python: torchPython}
	// plain starts at once. Like those of ddp, its workers notice the death of a peer, and fail.
	plain = &trainer{script: "plain_train.py", python: testenv.Python}
)

func torchPython(t testing.TB) string {
	t.Helper()
	return testenv.Torch(t, "2.14")
}

// usualTrainer returns the trainer of jobs that do not ask for one. All jobs have real torch in long runs of make soak.
func usualTrainer(t testing.TB) *trainer {
	t.Helper()
	if testenv.Long(t) {
		return ddp
	}
	return plain
}

// workerScript returns the path of a program in testdata/workers.
func workerScript(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs("../../../testdata/workers/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// undisturbed returns the loss of each step of an undisturbed run with one worker, of at least so many steps.
func (r *trainer) undisturbed(t testing.TB, steps int) []float64 {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil && steps >= len(r.losses) {
		steps *= 2 // another job may make a few more
		if testenv.Whole(t) {
			steps = max(steps, leastInSoak)
		}
		r.losses, r.err = r.train(t, steps)
	}
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.losses
}

// train runs one worker, alone, and returns the loss of each step, from step 1 on.
func (r *trainer) train(t testing.TB, steps int) ([]float64, error) {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 4*bound) // it runs beside two labs on a busy machine
	defer cancel()
	cmd := exec.CommandContext(ctx, r.python(t), workerScript(t, r.script), "--dir", dir,
		"--steps", strconv.Itoa(steps), "--step-time", "0")
	cmd.Env = append(os.Environ(), workerEnv(1, 1, 0, "127.0.0.1", 0)...)
	cmd.Env = append(cmd.Env, "GLOO_SOCKET_IFNAME=lo")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("train undisturbed: %w\n%s", err, out)
	}
	lines, err := readRecord(dir)
	losses := make([]float64, steps+1)
	for _, l := range lines {
		if l.Event == "step" { // the line at the end has the last step's number, and no loss
			losses[l.Step] = l.Loss
		}
	}
	return losses, err
}

// workerEnv returns the environment that a launcher gives the only worker of a node.
func workerEnv(round, world, rank int, masterAddr string, masterPort int) []string {
	return []string{
		"ELASTICRUN_ROUND=" + strconv.Itoa(
			round,
		), "TORCHELASTIC_RESTART_COUNT=0", "LOCAL_RANK=0", "GROUP_RANK=" + strconv.Itoa(rank),
		"WORLD_SIZE=" + strconv.Itoa(world), "RANK=" + strconv.Itoa(rank), "OMP_NUM_THREADS=1",
		"MASTER_ADDR=" + masterAddr, "MASTER_PORT=" + strconv.Itoa(masterPort),
	}
}
