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

// longest is more steps than any of these jobs makes before its bounds end it.
const longest = 2000

// trainer is a program of workers that train and record every step.
type trainer struct {
	script string // in testdata/workers
	python func(testing.TB) string

	// An undisturbed run is made once for all tests.
	once   sync.Once
	losses []float64
	err    error
}

var (
	// ddp trains with real torch, which takes seconds of CPU time to start.
	ddp = &trainer{script: "ddp_train.py", python: torchPython}
	// plain starts at once. Its workers notice the death of a peer, and fail, as those of ddp do.
	plain = &trainer{script: "plain_train.py", python: plainPython}
)

func torchPython(t testing.TB) string {
	t.Helper()
	return testenv.Torch(t, "2.14")
}

// plainPython returns a python3 without torch.
func plainPython(t testing.TB) string {
	t.Helper()
	const python = "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		testenv.Missing(t, "needs python3: %v", err)
	}
	return python
}

// usualTrainer returns the trainer of tests that do not ask for one: make soak runs all of them with real torch.
func usualTrainer(t testing.TB) *trainer {
	t.Helper()
	if testenv.Whole(t) {
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

// undisturbed returns the loss of each step of an undisturbed run with one worker.
func (r *trainer) undisturbed(t testing.TB) []float64 {
	t.Helper()
	python, dir := r.python(t), t.TempDir()
	r.once.Do(func() {
		ctx, cancel := context.WithTimeout(t.Context(), 4*bound) // it runs beside two labs on a busy machine
		defer cancel()
		cmd := exec.CommandContext(ctx, python, workerScript(t, r.script), "--dir", dir,
			"--steps", strconv.Itoa(longest), "--step-time", "0")
		cmd.Env = append(os.Environ(), workerEnv(1, 1, 0, "127.0.0.1", 0)...)
		cmd.Env = append(cmd.Env, "GLOO_SOCKET_IFNAME=lo")
		if out, err := cmd.CombinedOutput(); err != nil {
			r.err = fmt.Errorf("train undisturbed: %w\n%s", err, out)
			return
		}
		lines, err := readRecord(dir)
		r.losses, r.err = make([]float64, longest+1), err
		for _, l := range lines {
			r.losses[l.Step] = l.Loss
		}
	})
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.losses
}

// workerEnv is the environment that a launcher gives the only worker of a node.
func workerEnv(round, world, rank int, masterAddr string, masterPort int) []string {
	return []string{
		"ELASTICRUN_ROUND=" + strconv.Itoa(
			round,
		), "TORCHELASTIC_RESTART_COUNT=0", "LOCAL_RANK=0", "GROUP_RANK=" + strconv.Itoa(rank),
		"WORLD_SIZE=" + strconv.Itoa(world), "RANK=" + strconv.Itoa(rank), "OMP_NUM_THREADS=1",
		"MASTER_ADDR=" + masterAddr, "MASTER_PORT=" + strconv.Itoa(masterPort),
	}
}
