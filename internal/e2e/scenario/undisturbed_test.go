package scenario

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

const script = "../../../testdata/workers/ddp_train.py"

// longest is more steps than any of these jobs makes before its bounds end it.
const longest = 2000

// reference is computed once for all tests.
var reference struct {
	sync.Once

	losses []float64
	err    error
}

// undisturbed returns the loss of each step of an undisturbed run with one worker.
func undisturbed(t testing.TB) []float64 {
	t.Helper()
	python, dir := testenv.Torch(t, torch), t.TempDir()
	reference.Do(func() {
		ctx, cancel := context.WithTimeout(t.Context(), 4*bound) // it runs beside two labs on a busy machine
		defer cancel()
		cmd := exec.CommandContext(ctx, python, script, "--dir", dir, "--steps", strconv.Itoa(longest), "--step-time", "0")
		cmd.Env = append(os.Environ(), workerEnv(1, 1, 0, "127.0.0.1", 0)...)
		cmd.Env = append(cmd.Env, "GLOO_SOCKET_IFNAME=lo")
		if out, err := cmd.CombinedOutput(); err != nil {
			reference.err = fmt.Errorf("train undisturbed: %w\n%s", err, out)
			return
		}
		lines, err := readRecord(dir)
		reference.losses, reference.err = make([]float64, longest+1), err
		for _, l := range lines {
			reference.losses[l.Step] = l.Loss
		}
	})
	if reference.err != nil {
		t.Fatal(reference.err)
	}
	return reference.losses
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
