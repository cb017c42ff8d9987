package guard

import (
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// startSuspendable starts a guard in a process group of its own, as a shell does. The test stands for the shell.
func startSuspendable(t *testing.T, args ...string) *guardedJob {
	t.Helper()
	return startGuardedIn(t, &syscall.SysProcAttr{Setpgid: true}, args...)
}

// isStopped reports whether the guard is stopped.
func (j *guardedJob) isStopped() bool {
	p, ok := proctree.Read(j.guard.Process.Pid)
	return ok && p.Stopped()
}

// states returns how many processes of the job are stopped, and how many are not. A shell that waits for a stopped
// process in vfork is in state D.
func (j *guardedJob) states() (stopped, running int) {
	for _, p := range j.family() {
		if p.Stopped() || p.State == 'D' {
			stopped++
		} else {
			running++
		}
	}
	return stopped, running
}

// logStates logs the processes if the test fails.
func (j *guardedJob) logStates() {
	j.t.Cleanup(func() {
		if guard, ok := proctree.Read(j.guard.Process.Pid); ok && j.t.Failed() {
			j.t.Log(guard, j.family())
		}
	})
}

// awaitStopped waits until the guard and every process of the job are stopped.
func (j *guardedJob) awaitStopped() {
	j.t.Helper()
	j.logStates()
	testenv.Await(j.t, "the guard and the job to stop", long, func() bool {
		_, running := j.states()
		return j.isStopped() && running == 0
	})
}

// awaitRunning waits until neither the guard nor a process of the job is stopped.
func (j *guardedJob) awaitRunning() {
	j.t.Helper()
	j.logStates()
	testenv.Await(j.t, "the guard and the job to continue", long, func() bool {
		stopped, _ := j.states()
		return !j.isStopped() && stopped == 0
	})
}

// SIGTSTP stops every process of the job, and the guard. The agent works on. SIGCONT continues all of them.
func TestSuspend(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"nested"}} {
		t.Run(strings.Join(append(args, "guard"), " "), func(t *testing.T) {
			t.Parallel()
			j := startSuspendable(t, args...)
			j.workers()
			j.want("deadline 1m", "ok")
			for range 3 {
				j.signalGuard(syscall.SIGTSTP)
				j.awaitStopped()
				j.want("passed", "false")
				j.signalGuard(syscall.SIGCONT)
				j.awaitRunning()
			}
			j.want("stop", "ok")
			j.send("end")
			j.ends(7)
			for _, line := range []string{"suspended 1\n", "\ncontinued\n", "agent continues after 0 kills\n"} {
				if n := strings.Count(j.stderr.String(), line); n != 3 {
					t.Errorf("%q comes %d times, want 3", line, n)
				}
			}
		})
	}
}

// The deadline passes while the job is suspended. The workers are killed before anything is continued.
func TestDeadlineWhileSuspended(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"nested"}} {
		t.Run(strings.Join(append(args, "guard"), " "), func(t *testing.T) {
			t.Parallel()
			j := startSuspendable(t, args...)
			ps := j.workers()
			j.signalGuard(syscall.SIGTSTP)
			j.awaitStopped()
			j.want("deadline 50ms", "ok")
			if args != nil { // the lower guard is not stopped
				awaitDead(t, ps)
			}
			testenv.Await(t, "the deadline", long, func() bool { return j.ask("passed") == "true" })
			j.signalGuard(syscall.SIGCONT)
			awaitDead(t, ps)
			testenv.Await(t, "the agent to continue", long, func() bool {
				return j.ask("suspended") == "false"
			})
			j.want("killed 1m", "yes")
			j.want("stop", "ok")
			j.want("deadline 1m", "ok")
			j.workers() // which are not stopped
			j.want("killed 0s", "no")
			j.awaitRunning()
			j.want("stop", "ok")
			j.send("end")
			j.ends(7)
			if !strings.Contains(j.stderr.String(), "agent continues after 1 kills\n") {
				t.Error("the guard asked the agent to continue before the kill")
			}
		})
	}
}

// The agent is killed while the job is suspended. The kernel wakes the guard, which kills what is left.
func TestAgentDiesWhileSuspended(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"nested"}} {
		t.Run(strings.Join(append(args, "guard"), " "), func(t *testing.T) {
			t.Parallel()
			j := startSuspendable(t, args...)
			p := newPeer(t)
			j.want("notice "+p.Addr().String(), "ok")
			ps := j.workers()
			j.signalGuard(syscall.SIGTSTP)
			j.awaitStopped()
			j.signalAgent(syscall.SIGKILL)
			if came := p.noticed(long); !came || len(living(ps, true)) > 0 {
				t.Errorf("notice: %v; there were then %v", came, living(ps, true))
			}
			rescue := time.AfterFunc(long, func() { _ = j.guard.Process.Signal(syscall.SIGCONT) })
			j.ends(137)
			if !rescue.Stop() {
				t.Error("the guard did not continue by itself")
			}
			if strings.Contains(j.stderr.String(), "continued") {
				t.Error("a job that has ended was announced to continue")
			}
		})
	}
}

// A signal that reached the suspended guard ends the job when the guard continues.
func TestTerminateWhileSuspended(t *testing.T) {
	t.Parallel()
	j := startSuspendable(t)
	j.workers()
	j.signalGuard(syscall.SIGTSTP)
	j.awaitStopped()
	j.signalGuard(syscall.SIGTERM)
	j.signalGuard(syscall.SIGCONT)
	j.ends(143)
}

// A guard that nobody would continue ignores SIGTSTP, as the kernel does for programs without a handler.
func TestSuspendOrphaned(t *testing.T) {
	t.Parallel()
	j := startGuardedIn(t, &syscall.SysProcAttr{Setsid: true})
	j.workers()
	j.signalGuard(syscall.SIGTSTP)
	<-time.After(short)
	if stopped, _ := j.states(); stopped > 0 || j.isStopped() {
		t.Errorf("%d processes are stopped, the guard: %v", stopped, j.isStopped())
	}
}

// A SIGCONT that follows SIGTSTP at once leaves nothing stopped, whichever the guard sees first.
func TestContinueAtOnce(t *testing.T) {
	t.Parallel()
	j := startSuspendable(t)
	j.workers()
	for i := range testenv.Repeat(t, 20, 500) {
		j.signalGuard(syscall.SIGTSTP)
		<-time.After(time.Duration(i%8) * 500 * time.Microsecond)
		j.signalGuard(syscall.SIGCONT)
		<-time.After(10 * time.Millisecond)
	}
	j.awaitRunning()
}

// A SIGTSTP that the Go runtime delivers together with a SIGCONT may be the older one. It has no effect.
func TestSuspendTogetherWithContinue(t *testing.T) {
	t.Parallel()
	j := &jobControl{signals: make(chan os.Signal, 1)}
	j.signals <- syscall.SIGTSTP
	j.signaled(syscall.SIGCONT)
	if len(j.signals) > 0 {
		t.Error("the SIGTSTP is still to be acted on")
	}
}

// A SIGCONT that comes when the job is stopped already, but not the guard, continues the job.
func TestContinueBeforeTheGuardStops(t *testing.T) {
	t.Parallel()
	j := startSuspendable(t, "mute") // so the guard waits before it stops
	j.workers()
	j.signalGuard(syscall.SIGTSTP)
	testenv.Await(t, "a stopped process", long, func() bool {
		stopped, _ := j.states()
		return stopped > 0
	})
	j.signalGuard(syscall.SIGCONT)
	j.awaitRunning()
}

func TestIsIgnored(t *testing.T) {
	signal.Ignore(syscall.SIGWINCH)
	defer signal.Reset(syscall.SIGWINCH)
	if !isIgnored(syscall.SIGWINCH) || isIgnored(syscall.SIGTSTP) {
		t.Error("SIGWINCH is not seen to be ignored, or SIGTSTP is")
	}
}
