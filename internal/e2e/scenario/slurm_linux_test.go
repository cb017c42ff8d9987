package scenario

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/slurmlab"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// slurmBound is far longer than any job here takes.
const slurmBound = 3 * time.Minute

// slurmTest is a cluster with everything that its jobs need.
type slurmTest struct {
	lab      *slurmlab.Lab
	env      []string // environment of each job
	examples string
	worker   []string // the trainer and its folder
}

// TestSlurm runs the batch scripts of examples/slurm with workers that train. elasticrun learns of
// the nodes only from Slurm.
func TestSlurm(t *testing.T) { //nolint:tparallel // its parts use one cluster in turn
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	testenv.Root(t)
	s := &slurmTest{
		env: []string{
			"PATH=" + filepath.Dir(testenv.Binary(t)) + ":" + os.Getenv("PATH"),
			"OMP_NUM_THREADS=1",
			"TORCHINDUCTOR_CACHE_DIR=" + t.TempDir(), // torch makes this folder where temporary files are, and leaves it
		},
	}
	var err error
	if s.examples, err = filepath.Abs("../../../examples/slurm"); err != nil {
		t.Fatal(err)
	}
	s.lab = slurmlab.New(t)
	trainer := usualTrainer(t)
	if testenv.Whole(t) {
		trainer = ddp
	}
	s.use(t, trainer)
	t.Run("plain", s.plain)
	t.Run("requeue", s.requeue)
	s.use(t, usualTrainer(t))
	if testenv.Whole(t) {
		t.Run("cancel", s.cancel)
		t.Run("only PATH exported", s.exportsPath)
		t.Run("more tasks than nodes", s.tooManyTasks)
		t.Run("step", s.step)
		t.Run("two jobs", s.twoJobs)
		t.Run("time limit", s.timeLimit)
		t.Run("heterogeneous", s.heterogeneous)
		t.Run("heterogeneous plain", s.heterogeneousPlain)
	}
	s.use(t, trainer)
	t.Run("first agent", s.firstAgent)
	t.Run("node failure", s.nodeFailure) // last, because n3 is gone afterwards
}

// use makes the workers of later jobs run a trainer.
func (s *slurmTest) use(t *testing.T, r *trainer) {
	t.Helper()
	const python = "PYTHON_EXEC="
	s.env = slices.DeleteFunc(s.env, func(entry string) bool { return strings.HasPrefix(entry, python) })
	s.env = append(s.env, python+r.python(t))
	s.worker = []string{workerScript(t, r.script), "--dir", "."}
}

// submit submits one of the example scripts, which runs the trainer with these arguments.
func (s *slurmTest) submit(t *testing.T, example string, sbatch, launcher []string, worker ...string) *slurmlab.Job {
	t.Helper()
	args := append(slices.Clone(sbatch), filepath.Join(s.examples, example))
	return s.lab.Submit(t, s.env, slices.Concat(args, launcher, s.worker, worker)...)
}

// done fails the test unless the job has succeeded after that many requeues.
func done(t *testing.T, j *slurmlab.Job, restarts int) {
	t.Helper()
	want := slurmlab.Status{State: "COMPLETED", ExitCode: "0:0", Restarts: restarts}
	if diff := cmp.Diff(want, j.Wait(t, slurmBound)); diff != "" {
		t.Errorf("job %s (-want +got):\n%s", j.ID, diff)
	}
	nothingTemporary(t, j)
}

func nothingTemporary(t *testing.T, j *slurmlab.Job) {
	t.Helper()
	if left := j.Temporary(t); len(left) > 0 {
		t.Errorf("job %s left temporary files: %v", j.ID, left)
	}
}

// worldsOf returns the steps at which groups of workers began to train, and their members, sorted by time: "0: n1=0
// n2=1 n3=2" is a group that began without a checkpoint, with its ranks.
func worldsOf(t testing.TB, dir string) []string {
	t.Helper()
	lines, err := readRecord(dir)
	if err != nil {
		t.Fatal(err)
	}
	var worlds []string
	var members []line
	for _, l := range lines {
		if l.Event != "resumed" {
			continue
		}
		if members = append(members, l); len(members) < l.World {
			continue
		}
		slices.SortFunc(members, func(a, b line) int { return a.Rank - b.Rank })
		text := fmt.Sprintf("%d:", members[0].Step)
		for _, m := range members {
			text += fmt.Sprintf(" %s=%d", m.Host, m.Rank)
		}
		worlds, members = append(worlds, text), nil
	}
	if len(members) > 0 {
		worlds = append(worlds, fmt.Sprintf("incomplete: %v", members))
	}
	return worlds
}

func wantWorlds(t *testing.T, j *slurmlab.Job, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, worldsOf(t, j.Dir)); diff != "" {
		t.Errorf("worlds of job %s (-want +got):\n%s", j.ID, diff)
	}
}

// stepMade returns the highest recorded step.
func stepMade(t *testing.T, j *slurmlab.Job) int {
	t.Helper()
	lines, err := readRecord(j.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return lastStep(lines)
}

// awaitStep returns when the job has made a step beyond the given one.
func (s *slurmTest) awaitStep(t *testing.T, j *slurmlab.Job, beyond int) {
	t.Helper()
	testenv.Await(t, fmt.Sprintf("step %d of job %s", beyond+1, j.ID), slurmBound, func() bool {
		if now := j.Status(t); now.Ended() && stepMade(t, j) <= beyond {
			t.Fatalf("job %s is %+v", j.ID, now)
		}
		return stepMade(t, j) > beyond
	})
}

// finish ends the training of workers with --until=finish.
func finish(t *testing.T, j *slurmlab.Job) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(j.Dir, "finish"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

const threeNodes = "0: n1=0 n2=1 n3=2"

func (s *slurmTest) plain(t *testing.T) {
	j := s.submit(t, "plain.sbatch", nil, nil, "--steps=5")
	done(t, j, 0)
	wantWorlds(t, j, threeNodes)
}

func (s *slurmTest) step(t *testing.T) {
	j := s.submit(t, "step.sbatch", nil, nil, "--steps=5")
	done(t, j, 0)
	wantWorlds(t, j, threeNodes)
}

// cancel checks a canceled job; the test's cleanup looks for leftovers.
func (s *slurmTest) cancel(t *testing.T) {
	j := s.submit(t, "plain.sbatch", nil, nil, "--until=never")
	s.awaitStep(t, j, 1)
	s.staysSecret(t, j)
	// Within the job, status needs no endpoint, and finds the secret that the job has drawn.
	seen := s.lab.Run(t, "srun", "--overlap", "--jobid="+j.ID, "--nodes=1", "--ntasks=1", testenv.Binary(t), "status")
	if !strings.Contains(seen, "run id slurm-"+j.ID+".0: round 0, 3 nodes, 3 workers") {
		t.Errorf("elasticrun status says %q", seen)
	}
	j.Cancel(t)
	if got := j.Wait(t, slurmBound); got.State != "CANCELLED" {
		t.Errorf("the job is %+v", got)
	}
	nothingTemporary(t, j)
}

func (s *slurmTest) requeue(t *testing.T) {
	s.isRequeued(t, nil, func(j *slurmlab.Job) {
		s.staysSecret(t, j)
		j.Cancel(t, "--batch", "--signal=USR1") // like --signal=B:USR1@120, 120 s before the end
	})
}

// timeLimit checks a job that Slurm signals before its time limit.
func (s *slurmTest) timeLimit(t *testing.T) {
	// Slurm looks every 30 s, and sends the signal up to 30 s early: it comes 50 to 80 s after the start.
	s.isRequeued(t, []string{"--time=2", "--signal=B:USR1@40"}, func(*slurmlab.Job) {})
}

// isRequeued checks a job that is preempted and goes on from its checkpoint.
func (s *slurmTest) isRequeued(t *testing.T, sbatch []string, preempt func(*slurmlab.Job)) {
	t.Helper()
	j := s.submit(t, "requeue.sbatch", sbatch, []string{"--report=report-${node_rank}.json"}, "--stop-on-signal", "--until=finish")
	s.awaitStep(t, j, 2)
	first := drawnSecret(t, j)
	preempt(j)
	testenv.Await(t, "the job to be requeued", slurmBound, func() bool {
		now := j.Status(t)
		if now.Ended() {
			t.Fatalf("the job is %+v", now)
		}
		return now.State == "PENDING" && now.Restarts == 1
	})
	stopped := stepMade(t, j)
	// Two seconds in place of two minutes. Within the second of the requeue a node accepts no new credential for the
	// old job id.
	s.lab.Run(t, "scontrol", "update", "JobId="+j.ID, "StartTime=now+2")
	s.awaitStep(t, j, stopped)
	if again := drawnSecret(t, j); again == first {
		t.Error("the requeued job has the same secret")
	}
	finish(t, j)
	done(t, j, 1)
	wantWorlds(t, j, threeNodes, fmt.Sprintf("%d: n1=0 n2=1 n3=2", stopped))
	for rank := range 3 {
		data, err := os.ReadFile(filepath.Join(j.Dir, fmt.Sprintf("report-%d.json", rank)))
		var last report.Report
		if err == nil {
			err = json.Unmarshal(data, &last)
		}
		if err != nil || last.Goodput == nil || last.Goodput.Share() <= 0 {
			t.Errorf("the report of node %d has no goodput: %v, %+v", rank, err, last.Goodput)
		}
	}
}

func (s *slurmTest) nodeFailure(t *testing.T) {
	j := s.submit(t, "step.sbatch", nil, []string{"--nnodes=2:3", "--max-restarts=2"}, "--until=finish")
	s.awaitStep(t, j, 2)
	s.lab.KillNode(t, "n3")
	testenv.Await(t, "a world of two", slurmBound, func() bool { return len(worldsOf(t, j.Dir)) > 1 })
	// The controller itself notices only after minutes.
	s.lab.Run(t, "scontrol", "update", "NodeName=n3", "State=DOWN", "Reason=killed")
	s.awaitStep(t, j, stepMade(t, j))
	finish(t, j)
	if got := j.Wait(t, slurmBound); got.State != "COMPLETED" || got.ExitCode != "0:0" {
		t.Errorf("the job ended with %+v", got)
	}
	if left := j.Temporary(t); len(left) != 1 {
		t.Errorf("temporary files: %v, want the folder of n3 alone", left)
	}
	if worlds := worldsOf(t, j.Dir); len(worlds) != 2 || worlds[0] != threeNodes ||
		!strings.HasSuffix(worlds[1], ": n1=0 n2=1") {
		t.Errorf("the worlds were %q", worlds)
	}
}

// firstAgent kills the agent of the first node, where the job's store began. The others go on without a charge, though
// nothing but the number of nodes was given.
func (s *slurmTest) firstAgent(t *testing.T) {
	j := s.submit(t, "step.sbatch", nil, []string{"--nnodes=2:3", "--max-restarts=0", "--log-level=info"}, "--until=finish")
	s.awaitStep(t, j, 2)
	testenv.Await(t, "three voters", slurmBound, func() bool { return strings.Contains(j.Output(), survivesLoss) })
	all := j.Processes(t)
	i := slices.IndexFunc(all, func(p slurmlab.Process) bool {
		return p.Name == "erun-agent" && slices.Contains(p.Env, "SLURMD_NODENAME=n1")
	})
	if i < 0 {
		t.Fatal("n1 has no agent")
	}
	signalTo(all[i].PID, syscall.SIGKILL)
	testenv.Await(t, "a world of two", slurmBound, func() bool { return len(worldsOf(t, j.Dir)) > 1 })
	s.awaitStep(t, j, stepMade(t, j))
	finish(t, j)
	if got := j.Wait(t, slurmBound); got.ExitCode != "137:0" { // of the first node's task
		t.Errorf("the job ended with %+v", got)
	}
	if worlds := worldsOf(t, j.Dir); len(worlds) != 2 || worlds[0] != threeNodes ||
		!strings.HasSuffix(worlds[1], ": n2=0 n3=1") {
		t.Errorf("the worlds were %q", worlds)
	}
}

// twoJobs runs two jobs that share all nodes and addresses.
func (s *slurmTest) twoJobs(t *testing.T) {
	var jobs []*slurmlab.Job
	for range 2 {
		jobs = append(jobs, s.submit(t, "plain.sbatch", []string{"--cpus-per-task=1"}, nil, "--until=finish"))
	}
	for _, j := range jobs {
		s.awaitStep(t, j, 2)
	}
	for _, j := range jobs {
		if got := j.Status(t); got.State != "RUNNING" {
			t.Errorf("job %s does not run beside the other: %+v", j.ID, got)
		}
		finish(t, j)
	}
	for _, j := range jobs {
		done(t, j, 0)
		wantWorlds(t, j, threeNodes)
	}
}

func (s *slurmTest) heterogeneous(t *testing.T) {
	j := s.submit(t, "heterogeneous.sbatch", nil, nil, "--steps=5")
	done(t, j, 0)
	wantWorlds(t, j, "0: n1=0 n2=1 n2=2 n3=3 n3=4")
}

// heterogeneousPlain checks that elasticrun's own srun reaches all components.
func (s *slurmTest) heterogeneousPlain(t *testing.T) {
	j := s.submit(
		t,
		"plain.sbatch",
		[]string{"--nodes=1", "--cpus-per-task=1", ":", "--nodes=2", "--cpus-per-task=2"},
		nil,
		"--steps=5",
	)
	done(t, j, 0)
	wantWorlds(t, j, threeNodes)
}

// tooManyTasks checks that six agents on three nodes are refused.
func (s *slurmTest) tooManyTasks(t *testing.T) {
	batch := filepath.Join(t.TempDir(), "tasks.sbatch")
	if err := os.WriteFile(batch, []byte("#!/bin/sh\nsrun --nodes=3 --ntasks=6 elasticrun \"$@\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	j := s.lab.Submit(t, s.env, append([]string{"--nodes=3", "--ntasks=6", batch}, s.worker...)...)
	if got := j.Wait(t, slurmBound); got.State != "FAILED" || got.ExitCode != "2:0" {
		t.Errorf("the job ended with %+v, want exit code 2", got)
	}
	said := 0
	for line := range strings.Lines(j.Output()) {
		switch {
		case strings.HasPrefix(line, "elasticrun: SLURM_") && strings.Contains(line, "--ntasks-per-node=1"):
			said++
		case strings.HasPrefix(line, "elasticrun: exit_code=2 "),
			strings.HasPrefix(line, "srun: "),
			strings.HasPrefix(line, "slurmstepd"):
		default:
			t.Errorf("somebody wrote %q", line)
		}
	}
	if said != 6 {
		t.Errorf("%d lines say why, want one of each task", said)
	}
	wantWorlds(t, j)
}

// TestSlurmFirstNode loses the whole first node of an allocation whose srun runs elsewhere. The others go on, though
// nothing but the number of nodes was given.
func TestSlurmFirstNode(t *testing.T) {
	t.Parallel()
	testenv.InSoak(t)
	testenv.Root(t)
	lab, dir := slurmlab.New(t), t.TempDir()
	trainer := usualTrainer(t)
	command := []string{
		"--nodes=3", "--ntasks-per-node=1", "--no-kill", "--chdir=" + dir, "srun", "--no-kill", "--kill-on-bad-exit=0",
		testenv.Binary(t), "--nnodes=2:3", "--max-restarts=0", "--log-level=info", workerScript(t, trainer.script), "--dir", dir,
		"--until=finish",
	}
	cmd := lab.Command(t.Context(), "salloc", command...)
	cmd.Env = append(cmd.Env, "PYTHON_EXEC="+trainer.python(t), "OMP_NUM_THREADS=1")
	p := run(t, nil, "salloc", cmd)
	p.await(survivesLoss)
	testenv.Await(t, "a world of three", slurmBound, func() bool { return len(worldsOf(t, dir)) > 0 })
	lab.KillNode(t, "n1")
	testenv.Await(t, "a world of two", slurmBound, func() bool { return len(worldsOf(t, dir)) > 1 })
	if err := os.WriteFile(filepath.Join(dir, "finish"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The controller itself notices only after minutes, and srun waits for it.
	lab.Run(t, "scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=killed")
	p.code()
	if !strings.Contains(p.text(), "succeeded in") {
		t.Error("the job has not succeeded")
	}
	if worlds := worldsOf(t, dir); len(worlds) != 2 || worlds[0] != threeNodes ||
		!strings.HasSuffix(worlds[1], ": n2=0 n3=1") {
		t.Errorf("the worlds were %q", worlds)
	}
}
