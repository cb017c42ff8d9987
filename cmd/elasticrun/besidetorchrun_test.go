package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// runTorchrun is a Python program that starts a job with torchrun for each line of JSON on stdin. It forks, because
// importing torch takes seconds.
const runTorchrun = `
import json, os, sys
from torch.distributed.run import main
for line in sys.stdin:
    job = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.environ.update(job["Env"])
        main(job["Args"])
        os._exit(0)
    if code := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        sys.exit(f"torchrun {job['Args']}: {code}")
`

// sameJob is a job of one node.
type sameJob struct {
	name  string
	flags []string          // of the launcher
	env   map[string]string // of the launcher
	args  []string          // of the script
	ranks int
}

// sameJobs run under both launchers.
var sameJobs = []sameJob{
	{
		name: "one node", flags: []string{"--nproc-per-node=2"}, ranks: 2,
		args: []string{"--x", "$local_rank", "${local_rank}$$", "$unknown", ""},
	},
	{
		name: "c10d", ranks: 1, flags: []string{
			"--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--rdzv-id=run7", "--max-restarts=2", "--role=trainer",
		},
	},
	{
		name: "module", ranks: 2, flags: []string{"--standalone", "--nproc-per-node=2", "--signals-to-handle=SIGTERM", "-m"},
		env: map[string]string{"OMP_NUM_THREADS": "3", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"},
	},
	{
		name: "virtual local rank", ranks: 2, flags: []string{"--nproc-per-node=2", "--virtual-local-rank"},
		env: map[string]string{"CUDA_VISIBLE_DEVICES": "4, 7"},
	},
	{
		name: "virtual local rank of HIP", ranks: 2, flags: []string{"--nproc-per-node=2", "--virtual-local-rank"},
		env: map[string]string{"CUDA_VISIBLE_DEVICES": "4,7", "HIP_VISIBLE_DEVICES": "1,0"},
	},
}

// surroundings is what testdata/workers/surroundings.py writes.
type surroundings struct {
	Env           map[string]string
	Args, Options []string
}

// TestSurroundingsBesideTorchrun compares the variables, arguments and interpreter options of workers under torchrun
// and under elasticrun.
func TestSurroundingsBesideTorchrun(t *testing.T) {
	t.Parallel()
	testenv.InSoak(t)
	for _, version := range []string{"2.14", testenv.Official} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			python, dir := testenv.Torch(t, version), t.TempDir()
			jobs := slices.Clone(sameJobs)
			if version == "2.14" { // torch 2.15 heeds the variable
				jobs = slices.DeleteFunc(jobs, func(j sameJob) bool { return j.env["HIP_VISIBLE_DEVICES"] != "" })
			}
			underTorchrun(t, python, jobs, filepath.Join(dir, "torchrun"))
			for _, job := range jobs {
				out := filepath.Join(dir, "elasticrun", job.name)
				underElasticrun(t, python, job, out)
				want, got := startedWith(t, filepath.Join(dir, "torchrun", job.name)), startedWith(t, out)
				if len(got) != job.ranks {
					t.Errorf("%s: %d workers, want %d", job.name, len(got), job.ranks)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-torchrun +elasticrun):\n%s", job.name, diff)
				}
			}
		})
	}
}

// commandLine returns the arguments of a launcher.
func (j sameJob) commandLine(t *testing.T) []string {
	t.Helper()
	script, err := filepath.Abs("../../testdata/workers/surroundings.py")
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(j.flags, "-m") {
		script = "surroundings"
	}
	return slices.Concat(j.flags, []string{script}, j.args)
}

// launcherEnv returns the environment of a launcher of either kind.
func launcherEnv(t *testing.T, more ...string) []string {
	t.Helper()
	modules, err := filepath.Abs("../../testdata/workers")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	return append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "LC_ALL=C.UTF-8", "PYTHONPATH=" + modules,
		"PYTHONDONTWRITEBYTECODE=1",
	}, more...)
}

// underTorchrun runs jobs with one process that imports torch. The workers of each write to a folder of its name.
func underTorchrun(t *testing.T, python string, jobs []sameJob, out string) {
	t.Helper()
	var lines bytes.Buffer
	for _, job := range jobs {
		env := map[string]string{"OUT": filepath.Join(out, job.name)}
		maps.Copy(env, job.env)
		if err := errors.Join(
			os.MkdirAll(env["OUT"], 0o700),
			json.NewEncoder(&lines).Encode(map[string]any{"Env": env, "Args": job.commandLine(t)}),
		); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	mark := testenv.Mark()
	cmd := exec.CommandContext(ctx, python, "-c", runTorchrun)
	cmd.Env, cmd.Stdin = launcherEnv(t, mark), &lines
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	testenv.NothingLeft(t, mark)
}

func underElasticrun(t *testing.T, python string, job sameJob, out string) {
	t.Helper()
	if err := os.MkdirAll(out, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	mark := testenv.Mark()
	cmd := exec.CommandContext(ctx, testenv.Binary(t), job.commandLine(t)...)
	cmd.Env = launcherEnv(t, mark, "PYTHON_EXEC="+python, "OUT="+out)
	for name, value := range job.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	testenv.NothingLeft(t, mark)
}

// startedWith returns what each rank of a job was started with, without values that differ from job to job and
// variables that only one launcher has. MASTER_ADDR, the run id without --rdzv-id and the folder of the error file are
// among the differences of docs/from-torchrun.md.
func startedWith(t *testing.T, out string) map[string]surroundings {
	t.Helper()
	files, err := os.ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	ranks := make(map[string]surroundings)
	for _, file := range files {
		var s surroundings
		text, err := os.ReadFile(filepath.Join(out, file.Name()))
		if err == nil {
			err = json.Unmarshal(text, &s)
		}
		if err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(s.Env, func(name, _ string) bool {
			return strings.HasPrefix(name, "ELASTICRUN_") || slices.Contains(onlyOneHas, name)
		})
		for _, name := range []string{"MASTER_ADDR", "MASTER_PORT"} {
			if s.Env[name] == "" {
				t.Errorf("%s: rank %s has no %s", out, file.Name(), name)
			}
			delete(s.Env, name)
		}
		if s.Env["TORCHELASTIC_RUN_ID"] != "run7" {
			delete(s.Env, "TORCHELASTIC_RUN_ID")
		}
		s.Env["TORCHELASTIC_ERROR_FILE"] = attemptFile.FindString(s.Env["TORCHELASTIC_ERROR_FILE"])
		ranks[file.Name()] = s
	}
	return ranks
}

// attemptFile is the end of the path of an error file.
var attemptFile = regexp.MustCompile(`/attempt_\d+/\d+/error\.json$`)

// onlyOneHas are variables that differ because of how the launchers run in this test, and those that say where NCCL's
// traces go, which torchrun does not set.
var onlyOneHas = []string{
	"OUT", "HOME", "TMPDIR", "PYTHON_EXEC", "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
}
