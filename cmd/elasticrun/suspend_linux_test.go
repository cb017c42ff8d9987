package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// startInShell types a script with a launch of two workers into an interactive shell, and returns the workers' pids.
func startInShell(t *testing.T, flags ...string) (x *terminal, workers []int) {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		testenv.Missing(t, "needs bash")
	}
	x = startOnTerminal(t, exec.Command("bash", "--norc", "--noprofile", "-i"))
	tree, err := filepath.Abs("../../testdata/workers/tree.sh")
	if err != nil {
		t.Fatal(err)
	}
	// The script is in the process group of the launcher, and stops like it.
	x.press(fmt.Sprintf("sh -c '%s --nproc-per-node=2 %s --no-python %s; exit $?'\n",
		testenv.Binary(t), strings.Join(flags, " "), tree))
	ready := regexp.MustCompile(`ready (\d+)\s`)
	testenv.Await(t, "the workers", awaitBound, func() bool { return len(ready.FindAllString(x.screen(), -1)) == 2 })
	for _, found := range ready.FindAllStringSubmatch(x.screen(), -1) {
		pid, _ := strconv.Atoi(found[1])
		workers = append(workers, pid)
	}
	agent, _ := strconv.Atoi(statField(t, workers[0], 1))
	guard, _ := strconv.Atoi(statField(t, agent, 1))
	t.Cleanup(func() {
		if t.Failed() { // a suspended job would stay
			_ = syscall.Kill(guard, syscall.SIGKILL)
		}
	})
	return x, workers
}

func awaitStates(t *testing.T, pids []int, states string) {
	t.Helper()
	testenv.Await(t, fmt.Sprintf("state %s of %d", states, pids), awaitBound, func() bool {
		for _, pid := range pids {
			if !strings.Contains(states, processState(t, pid)) {
				return false
			}
		}
		return true
	})
}

// Ctrl-Z and SIGTSTP stop the workers with the launcher, fg and bg continue them, and Ctrl-C ends them.
func TestSuspendKey(t *testing.T) {
	x, workers := startInShell(t)
	for _, step := range []struct{ stop, resume string }{{"\x1a", "bg\n"}, {"kill -TSTP %1\n", "fg\n"}} {
		x.press(step.stop)
		x.expect("elasticrun: suspended 2 workers; continue with fg\r\n")
		awaitStates(t, workers, "T")
		x.press(step.resume)
		x.expect("elasticrun: continued\r\n")
		awaitStates(t, workers, "S")
	}
	x.press("\x03")
	x.expect("elasticrun: exit_code=130 reason=signal")
	x.press("echo co''de=$?\n")
	x.expect("code=130")
	x.press("exit\n")
	x.end()
}

// If the agent of a suspended job is killed, the guard continues without the shell and ends the job.
func TestAgentKilledWhileSuspended(t *testing.T) {
	x, workers := startInShell(t)
	x.press("\x1a")
	x.expect("Stopped")
	agent, _ := strconv.Atoi(statField(t, workers[0], 1))
	if err := syscall.Kill(agent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	x.expect("elasticrun: exit_code=137 reason=signal")
	for _, pid := range workers {
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("worker %d exists, in state %s", pid, processState(t, pid))
		}
	}
	x.press("fg\n") // the script
	x.press("exit\n")
	x.end()
}

// A node that is suspended for longer than the keep-alive time keeps its place in the job.
func TestSuspendedNodeKeepsItsPlace(t *testing.T) {
	t.Parallel()
	store := startStore(t)
	x, workers := startInShell(t, "--nnodes=1:2", "--rdzv-endpoint="+store.addr, "--rdzv-id=suspended",
		"--rdzv-conf=last_call_timeout=1,keep_alive_interval=2,keep_alive_max_attempt=3")
	x.press("\x1a")
	x.expect("Stopped")
	<-time.After(7 * time.Second)
	awaitStates(t, workers, "T")
	x.press("fg\n")
	x.expect("elasticrun: continued\r\n")
	awaitStates(t, workers, "S")
	x.press("\x03")
	x.expect("elasticrun: exit_code=130 reason=signal")
	x.press("exit\n")
	x.end()
	if strings.Contains(x.screen(), "silent") || strings.Count(x.screen(), "ready ") != 2 {
		t.Errorf("the job did not simply go on:\n%s", x.screen())
	}
}
