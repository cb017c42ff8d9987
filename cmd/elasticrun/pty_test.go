package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// terminal is a command, usually a launch, whose stdin, stdout and stderr are a terminal of its own.
type terminal struct {
	t    *testing.T
	mark string
	cmd  *exec.Cmd
	tty  *os.File // the user's side
	done chan struct{}

	mu    sync.Mutex
	shown bytes.Buffer
	read  int // how much of it has been expected already
}

// startTerminal runs a Python script with the binary at a terminal.
func startTerminal(t *testing.T, script string, flags ...string) *terminal {
	t.Helper()
	path := filepath.Join(t.TempDir(), "train.py")
	if err := os.WriteFile(path, []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	python := testenv.Python(t)
	t.Setenv("PYTHON_EXEC", python)
	return startOnTerminal(t, exec.Command(testenv.Binary(t), append(flags, path)...))
}

// startOnTerminal runs a command at a terminal of its own.
func startOnTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	x := &terminal{t: t, mark: testenv.Mark(), cmd: cmd, done: make(chan struct{})}
	x.cmd.Env = append(os.Environ(), x.mark, "TMPDIR="+t.TempDir())
	var err error
	if x.tty, err = pty.Start(x.cmd); err != nil {
		t.Fatal(err)
	}
	go x.watch()
	t.Cleanup(func() {
		_ = x.cmd.Process.Kill() // it has ended, unless the test failed
		_ = x.tty.Close()
		<-x.done
		testenv.NothingLeft(t, x.mark)
	})
	return x
}

// watch collects what the terminal shows until no process has it open.
func (x *terminal) watch() {
	defer close(x.done)
	buf := make([]byte, 4096)
	for {
		n, err := x.tty.Read(buf)
		x.mu.Lock()
		x.shown.Write(buf[:n])
		x.mu.Unlock()
		if err != nil { // EIO at the end
			return
		}
	}
}

// expect waits until the terminal shows text behind what was expected before.
func (x *terminal) expect(text string) {
	x.t.Helper()
	found := func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		at := bytes.Index(x.shown.Bytes()[x.read:], []byte(text))
		if at >= 0 {
			x.read += at + len(text)
		}
		return at >= 0
	}
	bound := time.NewTimer(awaitBound)
	defer bound.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for ended := false; !found(); {
		if ended {
			x.t.Fatalf("the job ended without %q; the terminal shows\n%s", text, x.screen())
		}
		select {
		case <-x.done:
			ended = true
		case <-bound.C:
			x.t.Fatalf("no %q; the terminal shows\n%s", text, x.screen())
		case <-again.C:
		}
	}
}

func (x *terminal) screen() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.shown.String()
}

// press sends keys.
func (x *terminal) press(keys string) {
	x.t.Helper()
	if _, err := x.tty.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
}

// end waits for the launcher and returns its exit code.
func (x *terminal) end() int {
	x.t.Helper()
	_ = x.cmd.Wait()
	<-x.done
	return testenv.ExitCode(x.cmd.ProcessState)
}

// A worker can be debugged at the terminal: its prompt is shown although no line end
// follows, and it reads what is typed.
func TestBreakpoint(t *testing.T) {
	for _, flags := range [][]string{nil, {"--tee=3"}} {
		t.Run(strings.Join(append(flags, "breakpoint"), " "), func(t *testing.T) {
			x := startTerminal(t, "import sys\nprint('a terminal:', sys.stdout.isatty())\nloss = 20\nbreakpoint()\nprint('went', 'on')\n", flags...)
			x.expect("a terminal: False")
			x.expect("(Pdb) ")
			x.press("p loss + 1\n")
			x.expect("21")
			x.expect("(Pdb) ")
			x.press("c\n")
			x.expect("went on")
			if code := x.end(); code != 0 {
				t.Errorf("exit code %d, want 0\n%s", code, x.screen())
			}
		})
	}
}

// Ctrl-C reaches the workers once, as SIGINT, and ends the job with 130.
func TestInterruptKey(t *testing.T) {
	const script = `
import subprocess, time
subprocess.Popen(["sleep", "1000"], start_new_session=True)
try:
    print("training", flush=True)
    while True:
        time.sleep(0.05)  # signal.pause() would miss a signal that comes just before it
except KeyboardInterrupt:
    print("saved")
`
	x := startTerminal(t, script, "--nproc-per-node=2")
	x.expect("training")
	x.expect("training")
	x.press("\x03")
	x.expect("saved")
	x.expect("saved")
	x.expect("elasticrun: exit_code=130 reason=signal")
	if code := x.end(); code != 130 {
		t.Errorf("exit code %d, want 130\n%s", code, x.screen())
	}
	testenv.NothingLeft(t, x.mark)
}

// stty tostop stops background processes that write to the terminal. It does not stop the agent, which is in the
// background.
func TestStopOnOutput(t *testing.T) {
	x := startTerminal(t, "import os\nos.system('stty tostop')\nprint('shown', flush=True)\ninput()\nprint('went', 'on')\n")
	x.expect("shown")
	x.press("\n")
	x.expect("went on")
	if code := x.end(); code != 0 {
		t.Errorf("exit code %d, want 0\n%s", code, x.screen())
	}
}
