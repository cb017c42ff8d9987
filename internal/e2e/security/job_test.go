package security

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// bound is far longer than any wait of these tests, even on a busy machine.
const bound = 60 * time.Second

// run is the run id of the jobs under attack.
const run = "job-under-attack"

// newSecret returns a secret and a file that holds it.
func newSecret(t testing.TB) (secret, file string) {
	t.Helper()
	secret, file = rand.Text(), filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return secret, file
}

// program is a running elasticrun.
type program struct {
	t      testing.TB
	name   string
	cmd    *exec.Cmd
	output string        // a file
	done   chan struct{} // closed when the program has ended
}

// command returns the binary with these arguments. The test fails if a process of it is left at the end.
func command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testenv.Binary(t), args...)
	mark := testenv.Mark()
	cmd.Env = append(os.Environ(), mark, "TMPDIR="+t.TempDir())
	t.Cleanup(func() { testenv.NothingLeft(t, mark) })
	return cmd
}

// start starts cmd. Its output is printed if the test fails.
func start(t testing.TB, name string, cmd *exec.Cmd) *program {
	t.Helper()
	p := &program{t: t, name: name, cmd: cmd, done: make(chan struct{})}
	p.output = filepath.Join(t.TempDir(), "output")
	out, err := os.Create(p.output)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if cmd.Stdout == nil {
		cmd.Stdout = out
	}
	cmd.Stderr = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() { // the test's context, which kills the program, has ended
		<-p.done
		if t.Failed() {
			t.Logf("---- %s (%v) wrote:\n%s", p.name, cmd.ProcessState, p.text())
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

// await waits until the program has printed the text.
func (p *program) await(text string) {
	p.t.Helper()
	testenv.Await(p.t, p.name+" to write "+text, bound, func() bool { return strings.Contains(p.text(), text) })
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

// startStore starts elasticrun store on this machine and returns its address. An empty secret file means none.
func startStore(t testing.TB, secretFile string, args ...string) (*program, string) {
	t.Helper()
	args = append([]string{"store", "--listen=127.0.0.1:0"}, args...)
	if secretFile != "" {
		args = append(args, "--rdzv-secret-file="+secretFile)
	}
	cmd := command(t, args...)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Stdout = w
	p := start(t, "store", cmd)
	_ = w.Close()
	line, err := bufio.NewReader(r).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) < 4 {
		t.Fatalf("the store prints %q, %v", line, err)
	}
	return p, words[3]
}

// stop ends a program by SIGTERM.
func (p *program) stop() {
	p.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended
	p.code()
}

// agentCommand returns an agent of a job of two nodes whose workers run a shell script.
func agentCommand(t testing.TB, endpoint, secretFile, script string, args ...string) *exec.Cmd {
	t.Helper()
	args = append([]string{
		"--nnodes=2", "--rdzv-endpoint=" + endpoint, "--rdzv-id=" + run, "--max-restarts=1", "--no-python",
	}, args...)
	if secretFile != "" {
		args = append(args, "--rdzv-secret-file="+secretFile)
	}
	return command(t, append(args, "/bin/sh", "-c", script)...)
}

// startAgent starts the agent of agentCommand.
func startAgent(t testing.TB, name, endpoint, secretFile, script string, args ...string) *program {
	t.Helper()
	return start(t, name, agentCommand(t, endpoint, secretFile, script, args...))
}

// restartOnce is a worker's script: in the first round rank 0 fails and the others wait, and then all succeed.
const restartOnce = `[ "$TORCHELASTIC_RESTART_COUNT" = 1 ] || { [ "$RANK" = 0 ] && exit 3; exec sleep 1000; }`

// until returns a worker's script that succeeds when a file exists.
func until(file string) string {
	return fmt.Sprintf(`until [ -e '%s' ]; do sleep 0.05; done`, file)
}

// create makes an empty file.
func create(t testing.TB, file string) {
	t.Helper()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
