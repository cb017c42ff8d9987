package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// needsQuitKey skips the test where Ctrl-\ is not told from kill -QUIT.
func needsQuitKey(t *testing.T) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("no signal handler for this processor")
	}
}

const quitScript = `
import os, signal, sys, time
def quit(*_):
    print("got SIGQUIT", flush=True)
    if "STUBBORN" not in os.environ: sys.exit(0)
signal.signal(signal.SIGQUIT, quit)
def train():
    print("training", flush=True)
    while True: time.sleep(0.05)
train()
`

// Ctrl-\ shows the stacks and changes nothing else. kill -QUIT stops the job.
func TestQuitKey(t *testing.T) {
	needsQuitKey(t)
	x := startTerminal(t, quitScript, "--nproc-per-node=2")
	x.expect("training")
	x.expect("training")
	for range 3 {
		x.press("\x1c")
		x.expect("elasticrun: the workers of this node now; Ctrl-C stops the job:\r\nrank 0 on ")
		x.expect("    train (")
	}
	if n := strings.Count(x.screen(), "got SIGQUIT"); n != 0 {
		t.Errorf("%d workers got a signal", n)
	}
	if err := syscall.Kill(x.cmd.Process.Pid, syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	x.expect("got SIGQUIT")
	x.expect("got SIGQUIT")
	x.expect("elasticrun: exit_code=131 reason=signal")
	if code := x.end(); code != 131 {
		t.Errorf("exit code %d, want 131", code)
	}
}

// Once the job is being stopped, Ctrl-\ kills the workers.
func TestQuitKeyWhileStopping(t *testing.T) {
	needsQuitKey(t)
	t.Setenv("STUBBORN", "1")
	x := startTerminal(t, quitScript, "--shutdown-timeout=5m")
	x.expect("training")
	if err := syscall.Kill(x.cmd.Process.Pid, syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	x.expect("got SIGQUIT")
	testenv.Await(t, "the end", awaitBound, func() bool { // what comes within a second counts as a copy
		x.press("\x1c")
		return strings.Contains(x.screen(), "exit_code=131")
	})
	if code := x.end(); code != 131 || strings.Contains(x.screen(), "of this node now") {
		t.Errorf("exit code %d\n%s", code, x.screen())
	}
}

// Ctrl-\ also reaches the script that started the launcher. If the script dies of it, the job is stopped as after any
// death of the script. bash scripts ignore the key.
func TestQuitKeyOfAScript(t *testing.T) {
	needsQuitKey(t)
	dies, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil || filepath.Base(dies) != "dash" {
		testenv.Missing(t, "needs dash as /bin/sh")
	}
	if _, err := exec.LookPath("bash"); err != nil {
		testenv.Missing(t, "needs bash")
	}
	tree, err := filepath.Abs("../../testdata/workers/tree.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		shell string
		goes  bool
	}{{"bash", true}, {dies, false}} {
		t.Run(filepath.Base(tt.shell), func(t *testing.T) {
			x := startOnTerminal(t, exec.Command("bash", "--norc", "--noprofile", "-i"))
			x.press(fmt.Sprintf("%s -c '%s --no-python %s; exit $?'\n", tt.shell, testenv.Binary(t), tree))
			ready := regexp.MustCompile(`ready (\d+)\s`)
			testenv.Await(t, "the worker", awaitBound, func() bool { return ready.MatchString(x.screen()) })
			worker, _ := strconv.Atoi(ready.FindStringSubmatch(x.screen())[1])
			t.Cleanup(func() {
				if t.Failed() { // the job would stay
					_ = syscall.Kill(worker, syscall.SIGKILL)
				}
			})
			x.press("\x1c")
			if tt.goes {
				x.expect("the workers of this node now")
				x.press("\x03")
				x.expect("exit_code=130")
			} else {
				x.expect("exit_code=131")
			}
			x.press("exit\n")
			x.end()
		})
	}
}
