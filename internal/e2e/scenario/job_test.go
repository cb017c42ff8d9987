package scenario

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

const (
	// bound is far longer than any wait of these tests, even on a busy machine.
	bound = 90 * time.Second
	// keepAlive is the time after which a silent node is lost, as keepAliveConf sets it.
	keepAlive     = 3 * time.Second
	keepAliveConf = "keep_alive_interval=1,keep_alive_max_attempt=3"
	// stepTime is the least duration of a step of the workers.
	stepTime = 50 * time.Millisecond
	stopFile = "stop"
)

// job is a launch under test: agents on simulated hosts.
type job struct {
	t       testing.TB
	lab     *hosts.Lab
	dir     string   // shared by all hosts
	flags   []string // flags of every agent
	trainer *trainer
	worker  []string // the script and its arguments
	agents  []*program
	others  []*program // stores
}

// program is a process on a host.
type program struct {
	t      testing.TB
	host   *hosts.Host
	name   string
	cmd    *exec.Cmd
	output string        // a file
	done   chan struct{} // closed when the program has ended
}

// newJob makes a lab and a job without agents. The job's workers train until finish.
func newJob(t testing.TB, n int) *job {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		if lines, err := readRecord(dir); err == nil && t.Failed() {
			for _, r := range rounds(lines) {
				t.Log(r)
			}
		}
	})
	j := &job{t: t, lab: hosts.New(t, n), dir: dir}
	j.use(usualTrainer(t))
	return j
}

// use makes the job's workers run a trainer.
func (j *job) use(r *trainer) {
	j.t.Helper()
	j.trainer, j.worker = r, []string{workerScript(j.t, r.script), "--dir", j.dir, "--until", stopFile}
}

// useTorchInSoak makes the job's workers run real torch in every run of make soak, however short.
func (j *job) useTorchInSoak() {
	j.t.Helper()
	if testenv.Whole(j.t) {
		j.use(ddp)
	}
}

// start starts an agent on a host.
func (j *job) start(h *hosts.Host, flags ...string) *program {
	j.t.Helper()
	return j.startCommand(h, slices.Concat([]string{testenv.Binary(j.t)}, j.flags, flags, j.worker)...)
}

// startCommand starts an agent on a host by a command that becomes the agent.
func (j *job) startCommand(h *hosts.Host, command ...string) *program {
	j.t.Helper()
	cmd := h.Command(j.t.Context(), command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "PYTHON_EXEC="+j.trainer.python(j.t), "OMP_NUM_THREADS=1")
	p := run(j.t, h, fmt.Sprintf("%s agent %d", h.Name, len(j.agents)), cmd)
	j.agents = append(j.agents, p)
	return p
}

// startAll starts an agent on each of the hosts.
func (j *job) startAll(on ...*hosts.Host) {
	j.t.Helper()
	for _, h := range on {
		j.start(h)
	}
}

// run starts a program. Its output is printed if the test fails.
func run(t testing.TB, h *hosts.Host, name string, cmd *exec.Cmd) *program {
	t.Helper()
	p := &program{t: t, host: h, name: name, cmd: cmd, done: make(chan struct{})}
	tmp := t.TempDir()
	p.output = filepath.Join(tmp, "output")
	out, err := os.Create(p.output)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() { // the test's context, which would kill the program, has ended
		<-p.done
		if t.Failed() {
			t.Logf("---- %s (%v) wrote:\n%s", p.name, cmd.ProcessState, p.tail(60))
		}
	})
	return p
}

// text returns the program's output so far.
func (p *program) text() string {
	data, err := os.ReadFile(p.output)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(data)
}

// tail returns the last lines of the program's output.
func (p *program) tail(n int) string {
	return lastLines(p.text(), n)
}

func lastLines(text string, n int) string {
	lines := strings.SplitAfter(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}

// ended reports whether the program has ended.
func (p *program) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// code waits for the program and returns its exit code as a shell reports it.
func (p *program) code() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(bound):
		p.t.Fatalf("%s did not end within %v", p.name, bound)
	}
	return testenv.ExitCode(p.cmd.ProcessState)
}

// await waits until the program has printed the text.
func (p *program) await(text string) {
	p.t.Helper()
	await(p.t, p.name+" to write "+text, func() bool { return strings.Contains(p.text(), text) })
}

// agentPID returns the process id of the agent below the guard, or the guard's own before the agent starts.
func (p *program) agentPID() int {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.cmd.Process.Pid))
	pid := p.cmd.Process.Pid
	for _, f := range files {
		data, _ := os.ReadFile(f)
		_, _ = fmt.Sscan(string(data), &pid)
	}
	return pid
}

// await polls a condition whose change sends no notice to the test.
func await(t testing.TB, what string, happened func() bool) {
	t.Helper()
	testenv.Await(t, what, bound, happened)
}

// record returns the workers' record so far.
func (j *job) record() []line { return j.recordAfter(-1) }

// recordAfter returns the record so far of the rounds after the given one. To read all of it takes much CPU time.
func (j *job) recordAfter(round int) []line {
	j.t.Helper()
	lines, err := readRecordAfter(j.dir, round)
	if err != nil {
		j.t.Fatal(err)
	}
	return lines
}

// awaitRound waits until a round later than after (-1 for any), with that many workers, has made a few steps. It
// returns the round.
func (j *job) awaitRound(after, world int) round {
	j.t.Helper()
	var found round
	await(j.t, fmt.Sprintf("a round of %d workers after round %d", world, after), func() bool {
		for _, r := range rounds(j.recordAfter(after)) {
			if r.lines[0].World == world && len(r.steps) >= 5 {
				found = r
				return true
			}
		}
		if ended := j.ended(); len(ended) > 0 && len(ended) == len(j.agents) {
			j.t.Fatalf("all agents have ended, before a round of %d workers after round %d", world, after)
		}
		return false
	})
	return found
}

// ended returns the agents that have ended.
func (j *job) ended() []*program {
	return slices.DeleteFunc(slices.Clone(j.agents), func(a *program) bool { return !a.ended() })
}

// agentOf returns the running agent of the node with that rank in the round; -1 means the last rank.
func (j *job) agentOf(r round, rank int) *program {
	j.t.Helper()
	var last line
	for _, l := range r.lines {
		if l.Group == rank || rank < 0 && l.Group >= last.Group {
			last = l
		}
	}
	for _, a := range j.agents {
		if a.host.Name == last.Host {
			return a
		}
	}
	j.t.Fatalf("no agent on %q", last.Host)
	return nil
}

// finish ends the workers' training.
func (j *job) finish() {
	j.t.Helper()
	if err := os.WriteFile(filepath.Join(j.dir, stopFile), nil, 0o600); err != nil {
		j.t.Fatal(err)
	}
}

// end is stop, and checks that the record is as expected.
func (j *job) end(code int, other map[*program]int, want expected) {
	j.t.Helper()
	j.stop(code, other)
	record := j.record()
	want.losses = j.trainer.undisturbed(j.t, lastStep(record))
	for _, bad := range check(record, want) {
		j.t.Error(bad)
	}
}

// stop waits for all agents and checks their exit codes: code, or the agent's own in other. It stops the stores, and
// checks that nothing is left on any host.
func (j *job) stop(code int, other map[*program]int) {
	j.t.Helper()
	for _, a := range j.agents {
		wanted, ok := other[a]
		if !ok {
			wanted = code
		}
		if got := a.code(); got != wanted {
			j.t.Errorf("%s ended with %d, want %d", a.name, got, wanted)
		}
	}
	for _, p := range j.others {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if the process has ended
		p.code()
	}
	j.lab.NothingLeft(20 * time.Second)
}
