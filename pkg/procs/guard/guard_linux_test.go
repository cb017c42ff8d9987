package guard

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// guardedJob is a guard with a scripted agent.
type guardedJob struct {
	t      *testing.T
	guard  *exec.Cmd
	agent  int // its pid
	in     io.Writer
	out    *bufio.Scanner
	stderr bytes.Buffer
}

func startGuarded(t *testing.T, args ...string) *guardedJob {
	t.Helper()
	return startGuardedIn(t, nil, args...)
}

// startGuardedIn starts the guard with attributes: a process group or a session of its own.
func startGuardedIn(t *testing.T, attr *syscall.SysProcAttr, args ...string) *guardedJob {
	t.Helper()
	j := &guardedJob{t: t}
	mark := testenv.Mark()
	j.guard = exec.Command(os.Args[0], args...)
	j.guard.Env = append(os.Environ(), helperEnv+"=guarded", mark, "GORACE=atexit_sleep_ms=10")
	j.guard.Stderr, j.guard.SysProcAttr = &j.stderr, attr
	in, out := testenv.StartWithPipes(t, j.guard)
	t.Cleanup(func() {
		_ = j.guard.Process.Kill() // a failed test may have left it, and the agent stopped
		if j.agent != 0 {
			_ = syscall.Kill(j.agent, syscall.SIGCONT)
		}
		_ = j.guard.Wait()
		testenv.NothingLeft(t, mark)
		if t.Failed() {
			t.Logf("stderr:\n%s", &j.stderr)
		}
	})
	j.in, j.out = in, bufio.NewScanner(out)
	pid, err := strconv.Atoi(j.ask("pid"))
	if err != nil {
		t.Fatal(err)
	}
	j.agent = pid
	return j
}

// send sends a command to the agent.
func (j *guardedJob) send(line string) {
	j.t.Helper()
	if _, err := fmt.Fprintln(j.in, line); err != nil {
		j.t.Fatal(err)
	}
}

func (j *guardedJob) ask(line string) string {
	j.t.Helper()
	j.send(line)
	if !j.out.Scan() {
		_ = j.guard.Wait()
		j.t.Fatalf("no answer to %q: %v\n%s", line, j.out.Err(), &j.stderr)
	}
	return j.out.Text()
}

func (j *guardedJob) want(line, answer string) {
	j.t.Helper()
	if got := j.ask(line); got != answer {
		j.t.Fatalf("%s: %q, want %q", line, got, answer)
	}
}

// next expects one more line of the answer.
func (j *guardedJob) next(line string) {
	j.t.Helper()
	if !j.out.Scan() || j.out.Text() != line {
		j.t.Fatalf("%q, want %q", j.out.Text(), line)
	}
}

// workers starts a worker that ignores SIGTERM and has children in other sessions. It returns all these processes.
func (j *guardedJob) workers() []proctree.Process {
	j.t.Helper()
	ready := filepath.Join(j.t.TempDir(), "ready")
	j.want(
		fmt.Sprintf(
			`start trap "" TERM; (setsid sh -c 'for i in 1 2 3 4 5 6 7 8 9; do (sleep 1000 &); done; echo >%s; sleep 1000' &); while :; do sleep 1000; done`,
			ready,
		),
		"ok",
	)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for bound := time.After(long); ; {
		select {
		case <-tick.C:
		case <-bound:
			j.t.Fatal("the worker did not get ready")
		}
		if _, err := os.Stat(ready); err == nil {
			if ps := j.family(); len(ps) >= 13 { // two shells with a sleep each, and the nine
				return ps
			}
		}
	}
}

func (j *guardedJob) family() []proctree.Process {
	all, err := proctree.All()
	if err != nil {
		j.t.Fatal(err)
	}
	return slices.DeleteFunc(
		proctree.Descendants(j.agent, all, func(proctree.Process) bool { return true }),
		proctree.Process.Dead,
	)
}

// living returns those of ps that exist. Zombies count only if zombies is set.
func living(ps []proctree.Process, zombies bool) []proctree.Process {
	var left []proctree.Process
	for _, p := range ps {
		if now, ok := proctree.Read(p.PID); ok && now.Start == p.Start && (zombies || !now.Dead()) {
			left = append(left, now)
		}
	}
	return left
}

// awaitDead waits until none of ps lives.
func awaitDead(t *testing.T, ps []proctree.Process) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for bound := time.After(long); len(living(ps, false)) > 0; {
		select {
		case <-tick.C:
		case <-bound:
			t.Fatalf("still there: %v", living(ps, false))
		}
	}
}

func (j *guardedJob) signalAgent(sig syscall.Signal) {
	j.t.Helper()
	if err := syscall.Kill(j.agent, sig); err != nil {
		j.t.Fatal(err)
	}
}

func (j *guardedJob) signalGuard(sig syscall.Signal) {
	j.t.Helper()
	if err := j.guard.Process.Signal(sig); err != nil {
		j.t.Fatal(err)
	}
}

// ends waits for the guard and checks its exit code.
func (j *guardedJob) ends(code int) {
	j.t.Helper()
	_ = j.guard.Wait()
	if got := j.guard.ProcessState.ExitCode(); got != code {
		j.t.Errorf("exit code %d, want %d", got, code)
	}
}

// peer receives exit notices: a guard of these tests dials the address that its agent gave.
type peer struct {
	net.Listener
	t *testing.T
}

func newPeer(t *testing.T) *peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return &peer{Listener: l, t: t}
}

// noticed reports whether a notice arrives within the given time, which may not be 0: it would miss one that is there.
func (p *peer) noticed(within time.Duration) bool {
	p.t.Helper()
	if err := p.Listener.(*net.TCPListener).SetDeadline(time.Now().Add(within)); err != nil {
		p.t.Fatal(err)
	}
	c, err := p.Accept()
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

const (
	long  = time.Minute            // for events that must happen
	short = 100 * time.Millisecond // for events that must not
)

// The agent is killed. Its exit notice arrives once every worker is gone, zombies included.
func TestExitNoticeComesAfterTheSweep(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"nested"}} {
		t.Run(strings.Join(append(args, "guard"), " "), func(t *testing.T) {
			t.Parallel()
			for range testenv.Repeat(t, 5, 100) {
				j := startGuarded(t, args...)
				p := newPeer(t)
				j.want("notice "+p.Addr().String(), "ok")
				ps := j.workers()
				j.signalAgent(syscall.SIGKILL)
				came := p.noticed(long)
				if left := living(ps, true); !came || len(left) > 0 {
					t.Errorf("notice: %v; there were then %v", came, left)
				}
				j.ends(137)
			}
		})
	}
}

// The last notice counts, until it is withdrawn. Workers inherit none of the agent's descriptors.
func TestExitNoticeIsReplacedAndWithdrawn(t *testing.T) {
	t.Parallel()
	for _, withdraw := range []bool{false, true} {
		j := startGuarded(t)
		first, last := newPeer(t), newPeer(t)
		j.want("notice "+first.Addr().String(), "ok")
		j.want("notice "+last.Addr().String(), "ok")
		if withdraw {
			j.want("notice", "ok")
		}
		for _, w := range j.workers() {
			for _, d := range descriptors(t, w.PID) {
				if strings.Contains(d, "socket") || strings.Contains(d, "timerfd") ||
					strings.Contains(d, "memfd") {
					t.Errorf("%v has inherited %s", w, d)
				}
			}
		}
		j.want("stop", "ok")
		j.send("end")
		j.ends(7)
		within := long
		if withdraw {
			within = short
		}
		if first.noticed(short) || last.noticed(within) == withdraw {
			t.Errorf("withdrawn %v: the wrong notice came", withdraw)
		}
	}
}

// procs.Sweep ends every descendant of an agent.
func TestSweep(t *testing.T) {
	t.Parallel()
	j := startGuarded(t)
	ps := j.workers()
	j.want("sweep", "ok")
	if left := living(ps, true); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	j.send("end")
	j.ends(7)
}

// descriptors lists the open files of a process.
func descriptors(t *testing.T, pid int) []string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		to, _ := os.Readlink(dir + e.Name()) // closed meanwhile
		all = append(all, e.Name()+" "+to)
	}
	return all
}

// The agent is killed while it sets one notice after another. The guard has a complete one.
func TestAgentDiesGivingNotices(t *testing.T) {
	t.Parallel()
	for range testenv.Repeat(t, 5, 100) {
		j := startGuarded(t)
		p := newPeer(t)
		j.want("storm "+p.Addr().String(), "ok")
		j.signalAgent(syscall.SIGKILL)
		j.ends(137)
		if !p.noticed(long) {
			t.Error("no notice came")
		}
	}
}

// An agent that is stopped loses its workers at the deadline, and learns why when it continues.
func TestDeadline(t *testing.T) { // it measures, so it is not parallel
	const in = 300 * time.Millisecond
	for _, args := range [][]string{nil, {"nested"}} {
		t.Run(strings.Join(append(args, "guard"), " "), func(t *testing.T) {
			j := startGuarded(t, args...)
			const promptly, least, most = 200 * time.Millisecond, 3, 20
			// The best of some, or of many on a busy machine.
			best, passed := time.Hour, 0
			for ; passed < least || passed < most && best > promptly; passed++ { // the deadline can pass repeatedly
				ps := j.workers()
				start := time.Now()
				j.want("deadline "+in.String(), "ok")
				set := time.Now()
				j.signalAgent(syscall.SIGSTOP)
				awaitDead(t, ps)
				if took := time.Since(start); took < in {
					t.Errorf("dead after %v", took)
				}
				best = min(best, time.Since(set)-in)
				j.signalAgent(syscall.SIGCONT)
				j.want("killed 1m", "yes")
				j.want("exit", "killed by signal 9 (SIGKILL), by us: false")
				j.want("stop", "ok")
				j.want("deadline 1m", "ok")
			}
			t.Logf("dead %v after the deadline", best)
			if best > promptly {
				t.Errorf("dead %v after the deadline at the earliest", best)
			}
			j.want("killed 100ms", "no")
			j.send("end")
			j.ends(7)
			if n := strings.Count(j.stderr.String(), "silent for 300ms\n"); n != passed {
				t.Errorf("said %d times that the agent was silent, want %d", n, passed)
			}
		})
	}
}

// A deadline that was renewed or cleared does not fire, not even if the guard was stopped at the time.
func TestDeadlineIsKept(t *testing.T) {
	t.Parallel()
	const in = 3 * time.Second // an agent on a busy machine can renew it in time
	j := startGuarded(t)
	ps := j.workers()
	j.want("renew "+in.String(), "ok")
	<-time.After(in + in/2)
	j.signalGuard(syscall.SIGSTOP)
	<-time.After(in + in/2)
	j.signalGuard(syscall.SIGCONT)
	j.want("killed 100ms", "no")
	if left := living(ps, false); len(left) != len(ps) {
		t.Errorf("%d of %d processes left", len(left), len(ps))
	}

	j = startGuarded(t)
	ps = j.workers()
	j.want("deadline 2s", "ok")
	j.want("deadline 0", "ok")
	j.want("killed 3s", "no")
	if left := living(ps, false); len(left) != len(ps) {
		t.Errorf("%d of %d processes left", len(left), len(ps))
	}
}

// The whole node was suspended, and the agent continues first: its renewal comes too late.
func TestDeadlineStaysPassed(t *testing.T) {
	t.Parallel()
	for _, late := range []string{"10s", "0"} {
		j := startGuarded(t)
		ps := j.workers()
		j.signalGuard(syscall.SIGSTOP) // first: on a busy machine it could act on the deadline before it is stopped
		j.want("deadline 200ms", "ok")
		j.signalAgent(syscall.SIGSTOP)
		<-time.After(400 * time.Millisecond)
		j.signalAgent(syscall.SIGCONT)
		j.want("passed", "true") // so it starts no worker
		j.want("deadline "+late, "ok")
		j.signalGuard(syscall.SIGCONT)
		awaitDead(t, ps)
		j.want("killed 1m", "yes")
		j.want("stop", "ok")

		j.want("deadline 1m", "ok")
		j.want("passed", "false")
		ps = j.workers() // the state is as at the beginning
		j.want("killed 100ms", "no")
		if left := living(ps, false); len(left) != len(ps) {
			t.Errorf("%d of %d processes left", len(left), len(ps))
		}
		j.want("deadline -1s", "ok")
		awaitDead(t, ps)
		j.want("killed 1m", "yes")
	}
}

// Guard and agent were stopped past the deadline, and the agent continues first. It may start workers only after the
// guard has acted on the deadline.
func TestAwaitGuard(t *testing.T) {
	t.Parallel()
	j := startGuarded(t)
	j.want("await 1m", "at once")
	ps := j.workers()
	j.signalGuard(syscall.SIGSTOP) // first: on a busy machine it could act on the deadline before it is stopped
	j.want("deadline 100ms", "ok")
	j.signalAgent(syscall.SIGSTOP)
	<-time.After(300 * time.Millisecond)
	j.signalAgent(syscall.SIGCONT)
	j.want("stop", "ok")
	j.want("await 300ms", "waits")
	j.next("no")
	j.want("await 1m", "waits") // else the guard may act before the agent asks
	j.signalGuard(syscall.SIGCONT)
	j.next("in the end")
	if left := living(ps, false); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	j.want("deadline 1m", "ok")
	ps = j.workers()
	j.want("await 1m", "at once") // it clears the deadline
	j.want("passed", "false")
	if left := living(ps, false); len(left) != len(ps) {
		t.Errorf("%d of %d processes left", len(left), len(ps))
	}
}

// Workers that fork while they are killed are killed too. They fork a limited number of times: on a busy machine they
// would otherwise take it over.
func TestDeadlineOfAForkingJob(t *testing.T) {
	t.Parallel()
	for range testenv.Repeat(t, 3, 50) {
		j := startGuarded(t)
		j.want(`start for i in $(seq 300); do setsid sleep 1000 & done; wait`, "ok")
		j.want("deadline 50ms", "ok")
		j.signalAgent(syscall.SIGSTOP)
		for none, bound := 0, time.Now().Add(long); none < 40; { // for 0.2 s
			<-time.After(5 * time.Millisecond)
			if none++; len(j.family()) > 0 {
				none = 0
			}
			if time.Now().After(bound) {
				t.Fatalf("%d processes live", len(j.family()))
			}
		}
		j.signalAgent(syscall.SIGKILL)
		j.ends(137)
	}
}

// A blocked console does not delay the guard.
func TestDeadlineOnAMuteConsole(t *testing.T) {
	t.Parallel()
	j := startGuarded(t, "mute")
	for range 2 {
		ps := j.workers()
		j.want("deadline 50ms", "ok")
		awaitDead(t, ps)
		j.want("killed 1m", "yes")
		j.want("stop", "ok")
		j.want("deadline 0", "ok")
	}
	ps := j.workers()
	j.signalAgent(syscall.SIGKILL)
	j.ends(137)
	if left := living(ps, true); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// An agent that announced its exit hangs in the kernel with one of its threads. The guard exits all the same. It holds
// back the exit notice, which would prove that nothing is left.
func TestStuckAgent(t *testing.T) {
	t.Parallel()
	h := testenv.NewHang(t)
	j := startGuarded(t, "impatient")
	p := newPeer(t)
	j.want("notice "+p.Addr().String(), "ok")
	j.guard.WaitDelay = time.Second // the hanging process has stderr open
	ps := j.workers()
	j.want("read "+h.Path, "ok")
	<-h.Reading
	j.send("end")
	j.ends(1)
	if p.noticed(short) {
		t.Error("an exit notice came")
	}
	for _, want := range []string{"exited with code 7 <nil> [", "in uninterruptible sleep in request_wait_answer"} {
		if !strings.Contains(j.stderr.String(), want) {
			t.Errorf("the guard does not say %q:\n%s", want, &j.stderr)
		}
	}
	if left := living(ps, false); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	h.Release()
}

// A guard that cannot see the workers of an agent that missed its deadline kills the agent, and so the workers.
func TestDeadlineInForeignProc(t *testing.T) {
	t.Parallel()
	testenv.Root(t) // to make a pid namespace without a /proc of its own
	mark := testenv.Mark()
	cmd := exec.Command("unshare", "--fork", "--pid", "--kill-child", os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"=guarded", mark, "GORACE=atexit_sleep_ms=10")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, out := testenv.StartWithPipes(t, cmd)
	lines := bufio.NewScanner(out)
	for _, line := range []string{"start (setsid sh -c 'sleep 1000 & sleep 1000' &); sleep 1000", "deadline 50ms"} {
		fmt.Fprintln(in, line)
		if !lines.Scan() || lines.Text() != "ok" {
			t.Fatalf("%s: %q, %v\n%s", line, lines.Text(), lines.Err(), &stderr)
		}
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 137 || !strings.Contains(stderr.String(), "silent for 50ms") {
		t.Errorf("exit code %d, stderr:\n%s", code, &stderr)
	}
	testenv.NothingLeft(t, mark)
}
