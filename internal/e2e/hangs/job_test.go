package hangs

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

const (
	// bound is far longer than anything here takes, even on a busy machine.
	bound = 6 * time.Minute
	// nodes and perNode make the job's world.
	nodes, perNode = 2, 2
	world          = nodes * perNode
)

// job is a launch of the binary on two nodes of this machine.
type job struct {
	t        testing.TB
	mark     string
	dir      string
	endpoint string
	begun    *os.File // a FIFO in which a rank reports that it hangs
	nodes    []*node
}

// node is one launcher.
type node struct {
	cmd    *exec.Cmd
	output testenv.Buffer
	report string        // its --report
	done   chan struct{} // closed when it has ended
}

// startJob starts a job with a script of testdata/hangs. The test's cleanup kills it.
func startJob(t testing.TB, python, script string, flags []string, env ...string) *job {
	t.Helper()
	path, err := filepath.Abs("../../../testdata/hangs/" + script)
	if err != nil {
		t.Fatal(err)
	}
	j := &job{
		t: t, mark: testenv.Mark(), dir: t.TempDir(), endpoint: fmt.Sprint("127.0.0.1:", testenv.FreePort(t)),
	}
	begun := filepath.Join(j.dir, "begun")
	if err := syscall.Mkfifo(begun, 0o600); err != nil {
		t.Fatal(err)
	}
	if j.begun, err = os.OpenFile(begun, os.O_RDWR|syscall.O_NONBLOCK, 0); err != nil { // a writer never waits
		t.Fatal(err)
	}
	t.Cleanup(func() { j.begun.Close() })
	for i := range nodes {
		n := &node{report: filepath.Join(j.dir, fmt.Sprint("report", i)), done: make(chan struct{})}
		argv := slices.Concat([]string{
			fmt.Sprint("--nnodes=", nodes), fmt.Sprint("--nproc-per-node=", perNode), fmt.Sprint("--node-rank=", i),
			"--rdzv-id=job", "--rdzv-endpoint=" + j.endpoint, "--shutdown-timeout=2", "--report=" + n.report,
		}, flags, []string{path})
		n.cmd = exec.CommandContext(t.Context(), testenv.Binary(t), argv...)
		n.cmd.Env = append(append(os.Environ(), j.mark, "PYTHON_EXEC="+python, "OMP_NUM_THREADS=1", "TMPDIR="+j.dir,
			"GLOO_SOCKET_IFNAME=lo", "PYTHONDONTWRITEBYTECODE=1", "HANG_BEGUN="+begun), env...)
		n.cmd.Stdout, n.cmd.Stderr = &n.output, &n.output
		n.cmd.WaitDelay = 10 * time.Second
		// A group of its own, as a shell makes it, so that innocent.py can stop the job as Ctrl-Z does.
		n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := n.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			defer close(n.done)
			_ = n.cmd.Wait()
		}()
		j.nodes = append(j.nodes, n)
	}
	t.Cleanup(func() { // the test's context, which kills the launchers, has ended
		for i, n := range j.nodes {
			<-n.done
			if t.Failed() {
				t.Logf("---- node %d (%v) wrote:\n%s", i, n.cmd.ProcessState, &n.output)
			}
		}
		testenv.NothingLeft(t, j.mark)
	})
	return j
}

// awaitBegun waits until a rank reports that its hang, or what only seems to be one, begins. It returns its pid.
func (j *job) awaitBegun() int {
	j.t.Helper()
	var rank, pid int
	read := make(chan error, 1)
	_ = j.begun.SetReadDeadline(time.Now().Add(bound))
	go func() {
		_, err := fmt.Fscanln(oneByOne{j.begun}, &rank, &pid)
		read <- err
	}()
	select {
	case err := <-read:
		if err != nil {
			j.t.Fatalf("no rank reports: %v", err)
		}
	case <-j.nodes[0].done:
		j.t.Fatal("node 0 ended before a rank reported")
	case <-j.nodes[1].done:
		j.t.Fatal("node 1 ended before a rank reported")
	}
	return pid
}

// oneByOne keeps Fscanln from reading past the end of the line.
type oneByOne struct{ io.Reader }

func (r oneByOne) Read(p []byte) (int, error) {
	return r.Reader.Read(p[:min(1, len(p))])
}

// codes waits for the launchers and returns their exit codes.
func (j *job) codes() []int {
	j.t.Helper()
	var all []int
	late := time.After(bound)
	for i, n := range j.nodes {
		select {
		case <-n.done:
			all = append(all, testenv.ExitCode(n.cmd.ProcessState))
		case <-late:
			j.t.Fatalf("node %d did not end within %v", i, bound)
		}
	}
	return all
}

// stop ends the job as an operator does, with SIGTERM.
func (j *job) stop() {
	j.t.Helper()
	for _, n := range j.nodes {
		_ = n.cmd.Process.Signal(syscall.SIGTERM) // fails if the launcher has ended
	}
	j.codes()
	testenv.NothingLeft(j.t, j.mark)
}
