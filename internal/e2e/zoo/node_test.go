package zoo

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// node is one agent of a job with real torch, with its guard and its workers.
type node struct {
	t       testing.TB
	mark    string
	cmd     *exec.Cmd
	stderr  output
	ready   chan trainer  // receives each worker when it is ready
	done    chan struct{} // closed when the guard has ended
	workers []trainer
}

// trainer is a worker that has reported that it trains.
type trainer struct{ rank, pid, child int }

// startNode starts an agent with a script in testdata/zoo and a version of torch, or "" for none.
func startNode(t testing.TB, version, name string, args, scriptArgs []string) *node {
	t.Helper()
	python := ""
	if version == "" {
		python = testenv.Python(t)
	} else {
		python = testenv.Torch(t, version)
	}
	n := &node{t: t, mark: testenv.Mark(), ready: make(chan trainer), done: make(chan struct{})}
	args = slices.Concat(args, []string{"--shutdown-timeout=5", zooScript(t, name)}, scriptArgs)
	n.cmd = exec.CommandContext(t.Context(), testenv.Binary(t), args...)
	n.cmd.Env = append(os.Environ(), n.mark, "PYTHON_EXEC="+python, "OMP_NUM_THREADS=1", "TMPDIR="+t.TempDir())
	n.cmd.Stderr = &n.stderr
	n.cmd.WaitDelay = 10 * time.Second
	stdout := testenv.StartWithOutput(t, n.cmd)
	go func() {
		defer close(n.done)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var w trainer
			if _, err := fmt.Sscanf(lines.Text(), "ready %d %d %d", &w.rank, &w.pid, &w.child); err == nil {
				n.ready <- w
			}
		}
		_ = n.cmd.Wait()
	}()
	return n
}

// await waits until so many workers are ready.
func (n *node) await(workers int) {
	n.t.Helper()
	late := time.After(bound)
	for len(n.workers) < workers {
		select {
		case w := <-n.ready:
			n.workers = append(n.workers, w)
		case <-n.done:
			n.t.Fatalf("the node ended before its workers were ready:\n%s", &n.stderr)
		case <-late:
			n.t.Fatalf("%d of %d workers got ready within %v:\n%s", len(n.workers), workers, bound, &n.stderr)
		}
	}
}

// agentPID returns the process id of the guard's only child.
func (n *node) agentPID() int {
	n.t.Helper()
	children := testenv.Children(n.cmd.Process.Pid)
	if len(children) != 1 {
		n.t.Fatalf("the guard has children %v, want one", children)
	}
	return children[0]
}

// tree lists every process of the node, its guard first.
func (n *node) tree() []int {
	all := []int{n.cmd.Process.Pid}
	for i := 0; i < len(all); i++ {
		all = append(all, testenv.Children(all[i])...)
	}
	return all
}

// end waits for the guard, checks that nothing is left, and returns the exit code as a shell reports it.
func (n *node) end() int {
	n.t.Helper()
	select {
	case <-n.done:
	case <-time.After(bound):
		n.t.Errorf("the node did not end within %v:\n%s", bound, &n.stderr)
		_ = n.cmd.Process.Kill()
		<-n.done
	}
	testenv.NothingLeft(n.t, n.mark)
	return testenv.ExitCode(n.cmd.ProcessState)
}

// blamed returns the global rank that the last line of stderr names as the root cause, or -1.
func (n *node) blamed() int {
	text := strings.TrimSpace(n.stderr.String())
	_, after, found := strings.Cut(text[strings.LastIndexByte(text, '\n')+1:], " rank=")
	rank, err := strconv.Atoi(strings.Fields(after + " -")[0])
	if !found || err != nil {
		return -1
	}
	return rank
}

// startStore starts a store for the rendezvous of several nodes and returns its address.
func startStore(t testing.TB) string {
	t.Helper()
	mark := testenv.Mark()
	cmd := exec.CommandContext(t.Context(), testenv.Binary(t), "store", "--listen=127.0.0.1:0")
	cmd.Env = append(os.Environ(), mark)
	stdout := testenv.StartWithOutput(t, cmd)
	t.Cleanup(func() { // the test's context, which would kill the store, has ended
		_ = cmd.Wait()
		testenv.NothingLeft(t, mark)
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) < 4 {
		t.Fatalf("the store is not ready: %q, %v", line, err)
	}
	return words[3]
}

// burn keeps cpus CPUs busy until the test ends.
func burn(t testing.TB, cpus int) {
	t.Helper()
	for range cpus {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Wait() })
	}
}
