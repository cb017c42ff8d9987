package main

import (
	"bufio"
	"fmt"
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
)

// unknownPeers is how many processes of others live in the pid namespace. Their pids cover those of the
// threads of the machine's kernel, which a foreign /proc shows as children of pid 2.
const unknownPeers = 300

// inForeignProc runs a launcher, "$@", in a new pid namespace under the /proc of the old one. The launcher gets pid
// $PID. Once its workers are ready the processes of others start, with $UNKNOWN_MARK in their environment. It prints
// the launcher's code as "code N", and ends when it reads a line from $GO.
const inForeignProc = `
if [ "$PID" = 1 ]; then exec "$@"; fi
i=2; while [ $i -lt "$PID" ]; do sleep 0 & wait $!; i=$((i+1)); done
"$@" <&0 &
launcher=$!
echo "pid $launcher"
read -r line <"$GO"
i=0; while [ $i -lt $UNKNOWN_PEERS ]; do env "$UNKNOWN_MARK" sleep 1000 & i=$((i+1)); done
echo unknownPeers
wait $launcher; echo "code $?"
read -r line <"$GO"
`

// If /proc shows another pid namespace, its pids belong to other processes here. A guard or agent that must end the
// rest of a job touches none of these processes, and still leaves no process of the job.
func TestForeignProc(t *testing.T) {
	t.Parallel()
	testenv.Root(t) // to make a pid namespace without a /proc of its own
	for _, tt := range []struct {
		name  string
		quick bool // make test has it
		pid   int
		kill  func(agent int) error // what happens to the job
		code  int
	}{
		{"agent killed, guard is pid 2", true, 2, killAgent(syscall.SIGKILL), 137},
		{"agent killed, guard is pid 5", false, 5, killAgent(syscall.SIGKILL), 137},
		{"agent killed, guard is pid 1", true, 1, killAgent(syscall.SIGKILL), 137},
		{"SIGTERM, guard is pid 2", false, 2, killAgent(syscall.SIGTERM), 143},
		{"SIGTERM, guard is pid 5", true, 5, killAgent(syscall.SIGTERM), 143},
	} {
		if !tt.quick && !testenv.Whole(t) {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, mark, unknownMark := t.TempDir(), testenv.Mark(), testenv.Mark()
			gate := filepath.Join(dir, "go")
			if err := syscall.Mkfifo(gate, 0o600); err != nil {
				t.Fatal(err)
			}
			tree, err := filepath.Abs("../../testdata/workers/tree.sh")
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("unshare", "--fork", "--pid", "--kill-child", "sh", "-c", inForeignProc, "sh",
				"env", mark, testenv.Binary(t), "--no-python", "--nproc-per-node=2", tree)
			cmd.Env = append(os.Environ(), "TMPDIR="+dir, "GO="+gate, fmt.Sprintf("PID=%d", tt.pid),
				"UNKNOWN_MARK="+unknownMark, fmt.Sprintf("UNKNOWN_PEERS=%d", unknownPeers))
			var stderr strings.Builder
			cmd.Stderr = &stderr
			pipe := testenv.StartWithOutput(t, cmd)
			lines := lineScanner{t, bufio.NewScanner(pipe)}
			if tt.pid > 1 {
				lines.await("pid " + strconv.Itoa(tt.pid))
			}
			for range 2 {
				lines.await("ready ")
			}
			if tt.pid > 1 {
				open(t, gate)
				lines.await("unknownPeers")
				if n := countWith(t, unknownMark, unknownPeers); n != unknownPeers {
					t.Fatalf("%d processes of others", n)
				}
			}
			began := time.Now()
			agent := testenv.AgentBelow(cmd.Process.Pid)
			if agent == 0 {
				t.Fatal("there is no agent")
			}
			if err := tt.kill(agent); err != nil {
				t.Fatal(err)
			}
			if tt.pid > 1 {
				if got, want := lines.await("code "), fmt.Sprintf("code %d", tt.code); got != want {
					t.Errorf("%q, want %q", got, want)
				}
				if n := countWith(t, unknownMark, unknownPeers); n != unknownPeers {
					t.Errorf("%d of %d processes of others live", n, unknownPeers)
				}
				open(t, gate)
			}
			_ = cmd.Wait()
			if code := testenv.ExitCode(cmd.ProcessState); tt.pid == 1 && code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if took := time.Since(began); took > awaitBound {
				t.Errorf("took %v", took)
			}
			last := fmt.Sprintf("elasticrun: exit_code=%d reason=signal\n", tt.code)
			if !strings.Contains(stderr.String(), last) {
				t.Errorf("the launcher did not come to its last line, %q", last)
			}
			if strings.Contains(stderr.String(), "not die") {
				t.Error("something did not die")
			}
			if n := strings.Count(stderr.String(), "pid namespace"); n != 1 {
				t.Errorf("the foreign /proc is mentioned %d times, want once", n)
			}
			testenv.NothingLeft(t, mark)
			if t.Failed() {
				t.Logf("stderr:\n%s", &stderr)
			}
		})
	}
}

// open lets who reads the named pipe go on.
func open(t *testing.T, fifo string) {
	t.Helper()
	if err := os.WriteFile(fifo, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
}

// countWith counts the processes that live with a variable in their environment. It looks again for a while until
// there are as many as wanted: they may be in the middle of execve.
func countWith(t *testing.T, variable string, want int) (n int) {
	t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for bound := time.After(awaitBound); ; {
		paths, err := filepath.Glob("/proc/[0-9]*/environ")
		if err != nil {
			t.Fatal(err)
		}
		n = 0
		for _, path := range paths {
			data, _ := os.ReadFile(path) // it may have ended
			if slices.Contains(strings.Split(string(data), "\x00"), variable) {
				n++
			}
		}
		if n == want {
			return n
		}
		select {
		case <-again.C:
		case <-bound:
			return n
		}
	}
}

// killAgent signals the process with the pid given.
func killAgent(sig syscall.Signal) func(agent int) error {
	return func(agent int) error { return syscall.Kill(agent, sig) }
}

// lineScanner reads lines that come in any order between others.
type lineScanner struct {
	t *testing.T
	*bufio.Scanner
}

// await returns the next line that begins with prefix.
func (l lineScanner) await(prefix string) string {
	l.t.Helper()
	for l.Scan() {
		if strings.HasPrefix(l.Text(), prefix) {
			return l.Text()
		}
	}
	l.t.Fatalf("no line %q: %v", prefix, l.Err())
	return ""
}
